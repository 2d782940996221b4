//! Who asks external engines that want a key: the controller reads no Secrets, so a Pod that mounts the key asks in its place.
//!
//! The key may be absent, or be another one later: the Pod runs all the same, reads it before every look, and says what is missing.

use serde_json::{Map, Value, json};

use super::router::{ENGINE_KEY, engine_ca};
use super::{PoolInput, SurveyObjects, engine_list, network_policy};
use crate::api::meta::annotations;
use crate::api::values::SecretKeyRef;
use crate::resources::labels::{self, Component};
use crate::resources::overlay::{self, PodParts};
use crate::resources::probes::{self, Pace};
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Kind, Object, names, security};

/// Port of what was found out.
pub const SURVEY_PORT: u16 = 8092;

/// None for engines that answer everybody: the controller asks those itself.
pub(super) fn build(input: PoolInput<'_>) -> Option<SurveyObjects> {
    let external = input.spec.external.as_ref()?;
    let key = external.api_key_secret_ref.as_ref()?;
    let pod = overlay::pod(parts(input, key), &[], input.rendering);
    let body = json!({"spec": {
        "replicas": 1,
        "selector": {"matchLabels": labels::of_pool(&input.owner.name, Component::Survey)},
        // Two would ask the engines twice.
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 2,
        "template": pod.template(),
    }});
    let name = names::survey(&input.owner.name);
    let labels = input.labels(Some(Component::Survey));
    let object = Object::new(Kind::Deployment, input.owner, name, labels, body);
    Some(SurveyObjects {
        network_policy: network_policy::survey(input, external),
        deployment: object.owned_by(input.owner),
    })
}

fn parts(input: PoolInput<'_>, key: &SecretKeyRef) -> PodParts {
    let owner = input.owner;
    let SecretKeyRef { name, key } = key;
    let mut arguments = vec![
        "survey".to_owned(),
        format!("--listen=0.0.0.0:{SURVEY_PORT}"),
        format!("--engine-key-file={ENGINE_KEY}/{key}"),
        format!("--engine-key-name=the Secret {name}, key {key}"),
    ];
    let engines = engine_list(&owner.name, &owner.namespace, input.spec, input.rendering);
    arguments.extend(engines.arguments());
    let source = volumes::optional(volumes::secret_keys(name, &[key]));
    let mut mounts = vec![Mounted::read_only("engine-key", ENGINE_KEY, source)];
    if let Some((mounted, file)) = engine_ca(input.spec) {
        mounts.push(mounted);
        arguments.push(format!("--engine-ca-file={file}"));
    }
    let (volumes, volume_mounts) = volumes::split(mounts);
    let defaults = json!({
        "securityContext": security::pod(),
        "containers": [{
            "name": "survey",
            "image": input.rendering.image,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        }],
    });
    let mut annotations: Map<String, Value> = Map::new();
    labels::set(&mut annotations, annotations::SAFE_TO_EVICT, "true");
    PodParts {
        labels: labels::of_pod(owner, Some(Component::Survey)),
        annotations,
        defaults,
        owned: json!({
            "serviceAccountName": names::account(&owner.name),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            // It has nothing to end.
            "terminationGracePeriodSeconds": 5,
            "volumes": volumes,
            "containers": [{
                "name": "survey",
                "args": arguments,
                "ports": [{"name": "survey", "containerPort": SURVEY_PORT, "protocol": "TCP"}],
                "livenessProbe": probes::http(SURVEY_PORT, "/health", Pace { period: 30, timeout: 10, failures: 6 }),
                "readinessProbe": probes::http(SURVEY_PORT, "/health", Pace { period: 10, timeout: 5, failures: 3 }),
                "securityContext": security::own_container(),
                "volumeMounts": volume_mounts,
            }],
        }),
    }
}
