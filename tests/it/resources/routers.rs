//! The pool's own front door.

use serde_json::json;

use super::{a_pool, arguments, container, mount, spec_pool, volume};

fn router(
    pool: &super::Resource,
) -> (
    rollout_operator::resources::pool::RouterObjects,
    serde_json::Value,
) {
    let router = pool.pool_objects().unwrap().router.unwrap();
    let pod = router.deployment.value["spec"]["template"]["spec"].clone();
    (router, pod)
}

#[test]
fn knows_the_engines_by_name_and_keeps_its_control_port_to_itself() {
    let (router, pod) = router(&spec_pool("from-claim"));
    let container = container(&pod, "router");
    let expected = [
        "router",
        "--leave-seconds=300",
        "--agents-listen=0.0.0.0:8080",
        "--control-listen=0.0.0.0:8081",
        "--control-token-file=/etc/rollout/secrets/control-token",
        "--advertise-url=http://from-claim-router.rl.svc.cluster.local:8080",
        "--engine-service=from-claim-engines.rl.svc.cluster.local:30000",
        "--engine-state-port=30001",
        "--engine-key-file=/etc/rollout/engine-key/key",
    ];
    assert_eq!(arguments(container), expected);
    assert_eq!(
        volume(&pod, "secrets")["secret"]["secretName"],
        router.secret.name()
    );
    assert_eq!(volume(&pod, "engine-key")["secret"]["secretName"], "engine");
    assert_eq!(mount(container, "/etc/rollout/secrets")["readOnly"], true);
    // As long as its engines drain, and then as long as it takes to answer everybody.
    assert_eq!(pod["terminationGracePeriodSeconds"], 330);
    assert_eq!(container["resources"]["requests"]["cpu"], 2);
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/ready");
}

#[test]
fn stands_in_front_of_engines_that_run_already() {
    let (_, pod) = router(&spec_pool("outside"));
    let service = "--engine-service=sglang.serving.svc.cluster.local:30000";
    let of_service = arguments(container(&pod, "router"));
    assert!(of_service.contains(&service));
    // Nothing of ours runs beside them.
    let sidecar = "--engine-state-port";
    assert!(!of_service.iter().any(|word| word.starts_with(sidecar)));
    let urls = a_pool(&json!({"external": {"urls": ["http://a:1", "http://b:2/"]}, "router": {}}));
    let (_, pod) = router(&urls);
    let arguments = arguments(container(&pod, "router"));
    assert!(
        arguments.ends_with(&["--engine=http://a:1", "--engine=http://b:2"]),
        "{arguments:?}"
    );
}

#[test]
fn has_the_cas_of_engines_behind_https() {
    let pool = a_pool(&json!({
        "external": {"urls": ["https://a"], "tls": {"caConfigMapKeyRef": {"name": "ca", "key": "ca.crt"}}},
        "router": {},
    }));
    let (_, pod) = router(&pool);
    let container = container(&pod, "router");
    assert!(arguments(container).contains(&"--engine-ca-file=/etc/rollout/engine-ca/ca.crt"));
    let volumes = pod["volumes"].as_array().unwrap();
    let ca = volumes.iter().find(|volume| volume["name"] == "engine-ca");
    assert_eq!(
        ca.unwrap()["configMap"],
        json!({"name": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]})
    );
    // Nobody is asked with a key.
    assert_eq!(pool.pool_objects().unwrap().survey, None);
}

#[test]
fn engines_with_a_key_are_asked_by_a_pod_that_runs_without_it_too() {
    let objects = spec_pool("outside").pool_objects().unwrap();
    let survey = objects.survey.unwrap().deployment.value;
    let pod = &survey["spec"]["template"]["spec"];
    assert_eq!(survey["spec"]["replicas"], 1);
    assert_eq!(pod["automountServiceAccountToken"], false);
    let container = container(pod, "survey");
    let arguments = arguments(container);
    assert_eq!(arguments[0], "survey");
    for argument in [
        "--engine-key-file=/etc/rollout/engine-key/key",
        "--engine-service=sglang.serving.svc.cluster.local:30000",
    ] {
        assert!(arguments.contains(&argument), "{arguments:?}");
    }
    let volumes = pod["volumes"].as_array().unwrap();
    let key = volumes.iter().find(|volume| volume["name"] == "engine-key");
    assert_eq!(key.unwrap()["secret"]["optional"], true);
}

#[test]
fn clients_of_several_routers_stay_with_theirs() {
    let (router, _) = router(&spec_pool("from-claim"));
    assert_eq!(router.service.value["spec"]["sessionAffinity"], "ClientIP");
    let (router, _) = super::routers::router(&spec_pool("outside"));
    assert!(
        router.service.value["spec"]
            .get("sessionAffinity")
            .is_none()
    );
}

#[test]
fn a_policy_that_no_router_has_is_refused() {
    let pool = a_pool(&json!({"engine": {"simulator": {}}, "router": {"policy": "LeastLoaded"}}));
    let refused = pool.pool_objects().unwrap_err();
    assert_eq!(refused.reason(), "NotSupported");
    assert!(
        refused
            .to_string()
            .starts_with("spec.router.policy: not built yet"),
        "{refused}"
    );
}
