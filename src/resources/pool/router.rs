//! The pool's own front door: routers in front of its engines.

use serde_json::{Value, json};

use super::{PoolInput, RouterObjects, SIDECAR_PORT, engine_list};
use crate::api::meta::annotations;
use crate::api::pool::{Router, RoutingPolicy};
use crate::api::values::{ConfigMapKeyRef, SecretKeyRef};
use crate::resources::labels::{self, Component};
use crate::resources::overlay::{self, Layer, PodParts};
use crate::resources::probes::{self, Pace};
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Kind, Object, Refusal, names, secrets, security};

/// Port that agents and other clients use.
pub const AGENTS_PORT: u16 = 8080;
/// Port that drivers use.
pub const CONTROL_PORT: u16 = 8081;

/// Key of the control token in a Secret.
pub(crate) const CONTROL_TOKEN: &str = "control-token";
/// Where secrets are mounted.
pub(crate) const SECRETS: &str = "/etc/rollout/secrets";
/// Where the engines' key is mounted.
pub(crate) const ENGINE_KEY: &str = "/etc/rollout/engine-key";
/// Where the engines' CAs are mounted.
const ENGINE_CA: &str = "/etc/rollout/engine-ca";

/// How long a router that is replaced goes on with what it has, where the engines have no drain of their own.
const LEAVE_SECONDS: i32 = 120;
/// After that to the end: the router answers everybody within 10 s.
const GRACE_SECONDS: i32 = 30;

pub(super) fn build(
    input: PoolInput<'_>,
    wanted: &Router,
    overruled: &mut Vec<String>,
) -> Result<RouterObjects, Refusal> {
    if let Some(policy) = wanted.policy
        && policy != RoutingPolicy::SessionAffinity
    {
        return Err(Refusal::not_supported(
            "spec.router.policy",
            "another policy than SessionAffinity",
        ));
    }
    let owner = input.owner;
    let name = names::router(&owner.name);
    let labels = || input.labels(Some(Component::Router));
    let token = secrets::pool_control_token(input.key, &owner.uid);
    let secret = Object::new(
        Kind::Secret,
        owner,
        name.clone(),
        labels(),
        opaque(&[(CONTROL_TOKEN, &token)]),
    );
    Ok(RouterObjects {
        secret: secret.owned_by(owner),
        service: service(input, wanted, &name).owned_by(owner),
        deployment: deployment(input, wanted, &name, overruled)?.owned_by(owner),
    })
}

/// The body of a Secret.
pub(crate) fn opaque(entries: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> = entries
        .iter()
        .map(|(key, value)| {
            let bytes = k8s_openapi::ByteString(value.as_bytes().to_vec());
            ((*key).to_owned(), json!(bytes))
        })
        .collect();
    json!({"type": "Opaque", "data": data})
}

fn service(input: PoolInput<'_>, wanted: &Router, name: &str) -> Object {
    let mut spec = json!({
        "selector": labels::of_pool(&input.owner.name, Component::Router),
        "ports": [
            {"name": "http", "port": AGENTS_PORT, "targetPort": AGENTS_PORT, "protocol": "TCP"},
            {"name": "control", "port": CONTROL_PORT, "targetPort": CONTROL_PORT, "protocol": "TCP"},
        ],
    });
    if wanted.replicas > 1 {
        // A session is known to the router that opened it.
        spec["sessionAffinity"] = json!("ClientIP");
    }
    let labels = input.labels(Some(Component::Router));
    let body = json!({"spec": spec});
    Object::new(Kind::Service, input.owner, name.to_owned(), labels, body)
}

fn deployment(
    input: PoolInput<'_>,
    wanted: &Router,
    name: &str,
    overruled: &mut Vec<String>,
) -> Result<Object, Refusal> {
    let owner = input.owner;
    let layers: Vec<Layer<'_>> = wanted
        .template
        .iter()
        .map(|template| Layer {
            at: "spec.router.template",
            template,
        })
        .collect();
    let mut pod = overlay::pod(parts(input, name), &layers, input.rendering);
    security::allow_chosen_root(&mut pod.spec);
    security::no_credentials(&pod.spec, security::Trust::Ours, "spec.router.template")?;
    overruled.append(&mut pod.overruled);
    let replicas = if input.spec.suspend {
        0
    } else {
        wanted.replicas
    };
    let body = json!({"spec": {
        "replicas": replicas,
        "selector": {"matchLabels": labels::of_pool(&owner.name, Component::Router)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "revisionHistoryLimit": 2,
        "template": pod.template(),
    }});
    let labels = input.labels(Some(Component::Router));
    let name = name.to_owned();
    Ok(Object::new(Kind::Deployment, owner, name, labels, body))
}

fn parts(input: PoolInput<'_>, name: &str) -> PodParts {
    let owner = input.owner;
    let engine = input.spec.engine.as_ref();
    let leave = engine.map_or(LEAVE_SECONDS, |engine| engine.drain_timeout_seconds);
    let mut arguments = vec![
        "router".to_owned(),
        format!("--leave-seconds={leave}"),
        format!("--agents-listen=0.0.0.0:{AGENTS_PORT}"),
        format!("--control-listen=0.0.0.0:{CONTROL_PORT}"),
        format!("--control-token-file={SECRETS}/{CONTROL_TOKEN}"),
        format!(
            "--advertise-url=http://{}:{AGENTS_PORT}",
            input.rendering.service_host(name, &owner.namespace)
        ),
    ];
    let engines = engine_list(&owner.name, &owner.namespace, input.spec, input.rendering);
    arguments.extend(engines.arguments());
    arguments.extend(state_port(input.spec));
    let mut mounts = vec![Mounted::read_only(
        "secrets",
        SECRETS,
        volumes::secret_keys(name, &[CONTROL_TOKEN]),
    )];
    if let Some((mounted, file)) = engine_key(input.spec) {
        mounts.push(mounted);
        arguments.push(format!("--engine-key-file={file}"));
    }
    if let Some((mounted, file)) = engine_ca(input.spec) {
        mounts.push(mounted);
        arguments.push(format!("--engine-ca-file={file}"));
    }
    let (volumes, volume_mounts) = volumes::split(mounts);
    let mut annotations = serde_json::Map::new();
    labels::set(&mut annotations, annotations::SAFE_TO_EVICT, "false");
    let defaults = json!({
        "securityContext": security::pod(),
        "containers": [{
            "name": "router",
            "image": input.rendering.image,
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
            "livenessProbe": liveness(),
        }],
    });
    PodParts {
        labels: labels::of_pod(owner, Some(Component::Router)),
        annotations,
        defaults,
        owned: json!({
            "serviceAccountName": names::account(&owner.name),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": leave.saturating_add(GRACE_SECONDS),
            "volumes": volumes,
            "containers": [{
                "name": "router",
                "args": arguments,
                "ports": [
                    {"name": "http", "containerPort": AGENTS_PORT, "protocol": "TCP"},
                    {"name": "control", "containerPort": CONTROL_PORT, "protocol": "TCP"},
                ],
                // Says which engines it has not found yet.
                "readinessProbe": probes::http(CONTROL_PORT, "/ready", Pace { period: 5, timeout: 5, failures: 3 }),
                "securityContext": security::own_container(),
                "volumeMounts": volume_mounts,
            }],
        }),
    }
}

/// A router that hangs is started again; its sessions are made again.
pub(crate) fn liveness() -> Value {
    let pace = Pace {
        period: 30,
        timeout: 10,
        failures: 6,
    };
    probes::http(AGENTS_PORT, "/health", pace)
}

/// Engines of our own have a sidecar, which says how they are.
pub(crate) fn state_port(spec: &crate::api::pool::SGLangPoolSpec) -> Option<String> {
    let is_ours = spec.engine.is_some();
    is_ours.then(|| format!("--engine-state-port={SIDECAR_PORT}"))
}

/// The key that the engines ask for: its volume, and its file.
pub(crate) fn engine_key(spec: &crate::api::pool::SGLangPoolSpec) -> Option<(Mounted, String)> {
    let own = spec.engine.as_ref();
    let own = own.and_then(|engine| engine.api_key_secret_ref.as_ref());
    let foreign = spec.external.as_ref();
    let foreign = foreign.and_then(|external| external.api_key_secret_ref.as_ref());
    let SecretKeyRef { name, key } = own.or(foreign)?;
    let source = volumes::secret_keys(name, &[key]);
    let mounted = Mounted::read_only("engine-key", ENGINE_KEY, source);
    Some((mounted, format!("{ENGINE_KEY}/{key}")))
}

/// The CAs of external engines behind https: their volume, and their file.
pub(crate) fn engine_ca(spec: &crate::api::pool::SGLangPoolSpec) -> Option<(Mounted, String)> {
    let tls = spec.external.as_ref()?.tls.as_ref()?;
    let ConfigMapKeyRef { name, key } = &tls.ca_config_map_key_ref;
    let source = volumes::config_map_keys(name, &[key]);
    let mounted = Mounted::read_only("engine-ca", ENGINE_CA, source);
    Some((mounted, format!("{ENGINE_CA}/{key}")))
}
