//! Who may reach whom.

use rollout_operator::api::meta::labels;
use rollout_operator::resources::{Object, pool};
use serde_json::{Value, json};

use super::{Case, Resource, a_pool, container, key, rendering, spec_job, spec_pool};

fn rules<'a>(policy: &'a Object, direction: &str) -> &'a Vec<Value> {
    policy.value["spec"][direction].as_array().unwrap()
}

/// Whether a selector takes the labels of a Pod.
fn selects(selector: &Value, pod: &Object) -> bool {
    let wanted = selector["matchLabels"].as_object().unwrap();
    wanted
        .iter()
        .all(|(name, value)| pod.label(name) == value.as_str())
}

fn engine_policy(name: &str) -> Option<Object> {
    spec_pool(name)
        .pool_objects()
        .unwrap()
        .engines
        .unwrap()
        .network_policy
}

#[test]
fn agents_reach_the_router_of_their_job_and_resolvers_and_nothing_else() {
    let job = spec_job("any-harness");
    let objects = job.objects();
    let policy = objects.agent_policy.clone().unwrap();
    let spec = &policy.value["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(spec.get("ingress").is_none());
    assert!(selects(&spec["podSelector"], &job.agent(0, 1)));
    assert!(!selects(&spec["podSelector"], &objects.driver));
    let egress = rules(&policy, "egress");
    assert_eq!(egress.len(), 2);
    assert_eq!(
        egress[0]["ports"],
        json!([{"protocol": "TCP", "port": 8080}])
    );
    assert!(selects(&egress[0]["to"][0]["podSelector"], &objects.driver));
    assert!(!selects(
        &egress[0]["to"][0]["podSelector"],
        &job.agent(0, 1)
    ));
    // No selector of namespaces: the job's own.
    assert!(egress[0]["to"][0].get("namespaceSelector").is_none());
    let ports: Vec<_> = egress[1]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| &port["port"])
        .collect();
    assert_eq!(ports, [53, 53]);
    // The cluster's own DNS and what the installation names, and no other Pod's port 53.
    assert_eq!(
        egress[1]["to"],
        json!([
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            },
            {"ipBlock": {"cidr": "169.254.20.10/32"}},
        ])
    );
}

#[test]
fn agents_reach_what_the_spec_adds() {
    let policy = spec_job("everything").objects().agent_policy.unwrap();
    let added = json!({"ports": [{"port": 443, "protocol": "TCP"}], "to": [{"namespaceSelector": {"matchLabels": {"name": "mirrors"}}}]});
    assert_eq!(rules(&policy, "egress").last(), Some(&added));
    assert_eq!(
        rules(&policy, "ingress"),
        &[json!({"from": [{"podSelector": {"matchLabels": {"app": "debugger"}}}]})]
    );
}

#[test]
fn a_driver_is_reached_by_its_agents_and_the_controller() {
    let job = spec_job("everything");
    let objects = job.objects();
    let policy = &objects.driver_policy;
    assert!(selects(
        &policy.value["spec"]["podSelector"],
        &objects.driver
    ));
    let ingress = rules(policy, "ingress");
    assert_eq!(ingress.len(), 2);
    let system = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "rollout-system"}}}]);
    assert_eq!(
        ingress[0],
        json!({"from": system, "ports": [{"protocol": "TCP", "port": 8090}]})
    );
    assert!(selects(
        &ingress[1]["from"][0]["podSelector"],
        &job.agent(0, 1)
    ));
    assert_eq!(
        ingress[1]["ports"],
        json!([{"protocol": "TCP", "port": 8080}])
    );
}

#[test]
fn engines_are_reached_by_routers_and_drivers_of_their_pool() {
    let policy = engine_policy("from-image").unwrap();
    let ingress = rules(&policy, "ingress");
    let drivers = &ingress[0]["from"][1];
    let namespaces = &drivers["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(namespaces["key"], "kubernetes.io/metadata.name");
    assert_eq!(namespaces["values"], json!(["rl", "research"]));
    let user = spec_job("any-harness");
    assert!(selects(&drivers["podSelector"], &user.objects().driver));
    assert!(!selects(&drivers["podSelector"], &user.agent(0, 1)));
    let stranger = spec_job("everything");
    assert!(!selects(
        &drivers["podSelector"],
        &stranger.objects().driver
    ));
    assert_eq!(ingress.len(), 3, "{policy:?}");
    let states = json!([{"protocol": "TCP", "port": 30001}]);
    assert_eq!(ingress[1]["ports"], states);
    // Engines ask each other which checkpoint they have, and nothing else.
    let pool = spec_pool("from-image");
    let engines = pool.pool_objects().unwrap().engines.unwrap();
    let template = &engines.deployment.value["spec"]["template"];
    let peers = &ingress[2]["from"][0]["podSelector"]["matchLabels"];
    for (label, value) in peers.as_object().unwrap() {
        assert_eq!(&template["metadata"]["labels"][label], value);
    }
    assert_eq!(ingress[2]["ports"], states);
}

#[test]
fn engines_with_a_key_are_reached_from_their_own_namespace() {
    let policy = engine_policy("from-claim").unwrap();
    let ingress = rules(&policy, "ingress");
    assert_eq!(
        ingress[0]["from"][1]["namespaceSelector"]["matchExpressions"][0]["values"],
        json!(["rl"])
    );
    // Trainers: on every port.
    assert_eq!(
        ingress[2],
        json!({"from": [{"podSelector": {"matchLabels": {"app": "trainer"}}}, {"ipBlock": {"cidr": "10.9.0.0/16"}}]})
    );
}

/// The policy of the Pod that has the key of external engines, if both are there.
fn survey_policy(pool: &Resource) -> Option<Object> {
    pool.pool_objects().unwrap().survey.unwrap().network_policy
}

#[test]
fn who_has_the_key_of_external_engines_is_reached_by_the_controller_and_reaches_them() {
    let pool = spec_pool("outside");
    let policy = survey_policy(&pool).unwrap();
    let survey = pool.pool_objects().unwrap().survey.unwrap().deployment;
    let template = &survey.value["spec"]["template"]["metadata"]["labels"];
    let selected = &policy.value["spec"]["podSelector"]["matchLabels"];
    for (label, value) in selected.as_object().unwrap() {
        assert_eq!(&template[label], value);
    }
    assert_eq!(
        policy.value["spec"]["policyTypes"],
        json!(["Ingress", "Egress"])
    );
    let system = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "rollout-system"}}}]);
    assert_eq!(
        rules(&policy, "ingress"),
        &[json!({"from": system, "ports": [{"protocol": "TCP", "port": 8092}]})]
    );
    // DNS as agents have it.
    let job = spec_job("any-harness").objects();
    let dns = rules(&job.agent_policy.unwrap(), "egress")[1].clone();
    assert_eq!(
        rules(&policy, "egress"),
        &[dns, json!({"ports": [{"protocol": "TCP", "port": 30000}]})]
    );
    // The Pods of a Service that a URL names have a port of their own.
    let external = json!({"urls": ["http://a:80"], "apiKeySecretRef": {"name": "k", "key": "key"}});
    let by_url = survey_policy(&a_pool(&json!({"external": external}))).unwrap();
    assert_eq!(
        rules(&by_url, "egress")[1],
        json!({"ports": [{"protocol": "TCP"}]})
    );
    let without = json!({"external": external, "networkPolicy": {"enabled": false}});
    assert_eq!(survey_policy(&a_pool(&without)), None);
}

#[test]
fn a_pool_can_do_without_a_policy() {
    assert_eq!(engine_policy("from-hub"), None);
}

#[test]
fn a_controller_outside_of_the_cluster_is_let_in() {
    let resource = spec_pool("from-image");
    let mut outside = rendering();
    outside.operator_namespace = None;
    let objects = resource.pool_objects_for(&outside, None).unwrap();
    let policy = objects.engines.unwrap().network_policy.unwrap();
    assert_eq!(
        rules(&policy, "ingress")[1],
        json!({"ports": [{"protocol": "TCP", "port": 30001}]})
    );
}

/// Everything secret, and which containers may have it.
#[test]
fn secrets_are_where_they_are_needed_only() {
    let job: Case = spec_job("everything");
    let driver = job.objects().driver.value;
    for (name, has) in [
        ("router", true),
        ("driver", true),
        ("plugins", false),
        ("shim", false),
    ] {
        let mounts = container(&driver["spec"], name)["volumeMounts"].to_string();
        assert_eq!(mounts.contains("\"secrets\""), has, "{name}: {mounts}");
    }
    let key_mounts = |name: &str| {
        container(&driver["spec"], name)["volumeMounts"]
            .to_string()
            .contains("engine-key")
    };
    assert!(key_mounts("router") && !key_mounts("driver") && !key_mounts("plugins"));
    let agent = job.agent(3, 7).value;
    let token = rollout_operator::resources::secrets::JobSecrets::of(&key(), &job.job.owner.uid, 1)
        .claim_token("everything", 3, 7);
    for name in ["agent", "shim"] {
        assert!(
            !container(&agent["spec"], name).to_string().contains(&token),
            "{name}"
        );
    }
    assert!(
        container(&agent["spec"], "session")["env"]
            .to_string()
            .contains(&token)
    );
    assert!(!agent["spec"]["volumes"].to_string().contains("secret"));
}

#[test]
fn labels_of_templates_cannot_make_an_agent_look_like_a_driver() {
    let mut job = spec_job("everything");
    job.job.spec["generate"]["agentic"]["agent"]["function"]["template"]["metadata"]["labels"] =
        json!({labels::COMPONENT: "driver", labels::POOL: "outside", labels::JOB_UID: "x"});
    let agent = job.agent(0, 1);
    assert_eq!(agent.label(labels::COMPONENT), Some("agent"));
    assert_eq!(agent.label(labels::POOL), None);
    assert_eq!(job.objects().overruled.len(), 3);
}

#[test]
fn ports_are_those_of_the_constants() {
    assert_eq!(
        (
            pool::ENGINE_PORT,
            pool::SIDECAR_PORT,
            pool::AGENTS_PORT,
            pool::CONTROL_PORT
        ),
        (30000, 30001, 8080, 8081)
    );
}
