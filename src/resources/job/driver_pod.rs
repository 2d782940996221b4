//! The driver's Pod of one attempt: router and plug-in host as native sidecars, the driver as its main container.
//!
//! A container that dies is started again in place, and finds ledger and settings as they were. The finalizer holds the Pod until its last word is in
//! the job's status.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::claims::CLAIM_SECRET;
use super::config::{self, DRIVER_FILE, ROUTER_FILE, SETTINGS, STATUS_PORT};
use super::plugins::Host;
use super::{JobInput, data, driver_settings, grace, plugins};
use crate::api::meta::{annotations, finalizers, labels as name};
use crate::resources::labels::{self, Component};
use crate::resources::overlay::{self, Layer, PodParts};
use crate::resources::pool::{AGENTS_PORT, CONTROL_TOKEN, SECRETS, liveness, state_port};
use crate::resources::probes::{self, Pace};
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Kind, Object, Refusal, names, security};

/// The router's container.
const ROUTER: &str = "router";
/// The main container.
const DRIVER: &str = "driver";

/// The Pod, and the paths of what templates wanted and did not get.
pub(super) fn build(input: JobInput<'_>) -> Result<(Object, Vec<String>), Refusal> {
    let plugin_template = input.spec.plugins.as_ref().and_then(plugins::template);
    let layers: Vec<Layer<'_>> = [
        ("spec.driver.template", input.spec.driver.template.as_ref()),
        ("spec.plugins.container", plugin_template.as_ref()),
    ]
    .into_iter()
    .filter_map(|(at, template)| {
        Some(Layer {
            at,
            template: template?,
        })
    })
    .collect();
    let mut pod = overlay::pod(parts(input)?, &layers, input.rendering);
    security::allow_chosen_root(&mut pod.spec);
    security::no_credentials(&pod.spec, security::Trust::Ours, "spec.driver.template")?;
    files_are_mounted(input, &pod.spec)?;
    let below_container = format!(".spec.initContainers[{}]", plugins::CONTAINER);
    let overruled = pod
        .overruled
        .iter()
        .map(|path| match path.strip_prefix("spec.plugins.container") {
            Some(rest) => format!(
                "spec.plugins.container{}",
                rest.replacen(&below_container, "", 1)
            ),
            None => path.clone(),
        })
        .collect();
    let name = names::driver(&input.owner.name, input.attempt);
    let object = input.object(Kind::Pod, name, None, json!({"spec": pod.spec}));
    let mut object = object.owned_by(input.owner);
    let metadata = &mut object.value["metadata"];
    let version = metadata["labels"][name::APP_VERSION].clone();
    metadata["labels"] = pod.metadata["labels"].clone();
    metadata["labels"][name::APP_VERSION] = version;
    metadata["annotations"] = pod.metadata["annotations"].clone();
    metadata["finalizers"] = json!([finalizers::LAST_WORD]);
    Ok((object, overruled))
}

fn parts(input: JobInput<'_>) -> Result<PodParts, Refusal> {
    let owner = input.owner;
    let data = data::of(input);
    let host = input.spec.plugins.as_ref();
    let host = host.map(|wanted| plugins::host(input, wanted));
    let settings_name = names::driver(&owner.name, input.attempt);
    let settings = Mounted::read_only(
        "settings",
        SETTINGS,
        volumes::config_map_keys(&settings_name, &[DRIVER_FILE, ROUTER_FILE]),
    );
    let secrets = Mounted::read_only(
        "secrets",
        SECRETS,
        volumes::secret_keys(&names::secret(&owner.name), &[CONTROL_TOKEN, CLAIM_SECRET]),
    );
    let mut volumes: Vec<Value> = vec![settings.volume, secrets.volume];
    let mut router_mounts = vec![settings.mount.clone(), secrets.mount.clone()];
    let of_engines = [config::engines_key(input)?, config::engines_ca(input)?];
    for (Mounted { volume, mount }, _) in of_engines.into_iter().flatten() {
        volumes.push(volume);
        router_mounts.push(mount);
    }
    let mut driver_mounts = vec![settings.mount, secrets.mount];
    for Mounted { volume, mount } in data.mounts {
        volumes.push(volume);
        driver_mounts.push(mount);
    }
    if let Some(host) = &host {
        volumes.extend(host.volumes.iter().cloned());
        driver_mounts.push(plugins::socket().mount);
    }
    let resources = input.spec.driver.resources.as_ref().map_or_else(
        || json!({"requests": {"cpu": "100m", "memory": "256Mi"}}),
        |resources| json!(resources),
    );
    let defaults = json!({
        "securityContext": security::pod(),
        "initContainers": default_sidecars(host.as_ref()),
        "containers": [{"name": DRIVER, "resources": resources}],
    });
    Ok(PodParts {
        labels: labels_of(input),
        annotations: steady(),
        defaults,
        owned: json!({
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": grace::driver(input.spec),
            "volumes": volumes,
            "initContainers": fixed_sidecars(input, host, router_mounts),
            "containers": [{
                "name": DRIVER,
                "image": input.rendering.image,
                "args": ["driver", format!("--config={SETTINGS}/{DRIVER_FILE}")],
                "ports": [{"name": "status", "containerPort": STATUS_PORT, "protocol": "TCP"}],
                "terminationMessagePath": driver_settings::LAST_WORD,
                "terminationMessagePolicy": "File",
                "securityContext": security::own_container(),
                "volumeMounts": driver_mounts,
            }],
        }),
    })
}

/// What templates may change, in the order in which the containers start.
fn default_sidecars(host: Option<&Host>) -> Vec<Value> {
    let router = json!({
        "name": ROUTER,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "startupProbe": probes::http(AGENTS_PORT, "/health", Pace { period: 1, timeout: 5, failures: 60 }),
        "livenessProbe": liveness(),
    });
    match host {
        None => vec![router],
        Some(host) => vec![
            json!({"name": plugins::INSTALL}),
            router,
            host.default.clone(),
        ],
    }
}

/// What they may not.
fn fixed_sidecars(
    input: JobInput<'_>,
    host: Option<Host>,
    router_mounts: Vec<Value>,
) -> Vec<Value> {
    let image = &input.rendering.image;
    let mut router = json!({
        "name": ROUTER,
        "image": image,
        "args": router_arguments(input),
        "restartPolicy": "Always",
        "ports": [{"name": "http", "containerPort": AGENTS_PORT, "protocol": "TCP"}],
        "securityContext": security::own_container(),
    });
    router["volumeMounts"] = Value::Array(router_mounts);
    match host {
        None => vec![router],
        Some(host) => vec![plugins::install(image), router, host.fixed],
    }
}

/// What its settings cannot say: routers of the version before refuse settings that they do not know, and an attempt keeps its image.
fn router_arguments(input: JobInput<'_>) -> Vec<String> {
    let mut arguments = vec![
        "router".to_owned(),
        format!("--config={SETTINGS}/{ROUTER_FILE}"),
    ];
    arguments.extend(state_port(input.pool.spec));
    arguments
}

/// A `file://` URL is a path in the driver's container. Without a volume there, a data set cannot be read, and samples would go with the Pod.
fn files_are_mounted(input: JobInput<'_>, spec: &Value) -> Result<(), Refusal> {
    let output = input.spec.output.as_ref();
    for (field, url) in [
        ("spec.dataset.url", input.spec.dataset.url.as_deref()),
        (
            "spec.output.url",
            output.and_then(|output| output.url.as_deref()),
        ),
    ] {
        let Some(path) = url.and_then(|url| url.strip_prefix("file://")) else {
            continue;
        };
        let containers = spec["containers"].as_array().into_iter().flatten();
        let mut mounts = containers
            .filter(|container| container["name"] == DRIVER)
            .flat_map(|driver| driver["volumeMounts"].as_array().into_iter().flatten());
        let is_mounted = mounts.any(|mount| {
            let directory = mount["mountPath"].as_str().unwrap_or_default();
            Path::new(path).starts_with(directory)
        });
        if !is_mounted {
            return Err(Refusal::invalid(
                field,
                format!(
                    "nothing is mounted at {path} in the driver's container: mount a volume there in spec.driver.template, or use persistentVolumeClaim"
                ),
            ));
        }
    }
    Ok(())
}

/// With the pool's name: its policy lets the driver in by it.
fn labels_of(input: JobInput<'_>) -> Map<String, Value> {
    let mut labels = labels::of_pod(input.owner, Some(Component::Driver));
    labels::set(&mut labels, name::POOL, input.pool.name);
    labels::set(&mut labels, name::ATTEMPT, &input.attempt.to_string());
    labels::queue(input.owner, &mut labels);
    labels
}

/// Annotations of a Pod that is not to be moved and does not restart.
pub(super) fn steady() -> Map<String, Value> {
    let mut annotations = Map::new();
    labels::set(&mut annotations, annotations::SAFE_TO_EVICT, "false");
    labels::set(
        &mut annotations,
        annotations::ARGO_IGNORE_RESTART_POLICY,
        "true",
    );
    annotations
}
