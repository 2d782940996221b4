//! Server-side apply: nothing is sent without need, what is ours is repaired once, what is others' stays.

use std::sync::Arc;

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rollout_operator::api::meta::field_managers;
use rollout_operator::controllers::runtime::apply::{Applier, Outcome};
use rollout_operator::controllers::runtime::calls::{Calls, Identity};
use rollout_operator::controllers::runtime::connection;
use rollout_operator::controllers::runtime::decision::Reason;
use rollout_operator::controllers::runtime::election::Leadership;
use rollout_operator::controllers::runtime::metrics::Metrics;
use rollout_operator::controllers::runtime::ownership::Difference;
use rollout_operator::controllers::{Class, Error};
use serde_json::{Value, json};

use crate::api::{client, dynamic, namespace};

pub(super) fn applier(client: &Client) -> Applier {
    let calls = Calls::new(client.clone(), Leadership::always());
    Applier::new(calls, field_managers::POOL, Arc::new(Metrics::default()))
}

pub(super) async fn live(client: &Client, object: &Value) -> Value {
    let identity = Identity::of(object).unwrap();
    let api = identity.api(client);
    serde_json::to_value(api.get(&identity.name).await.unwrap()).unwrap()
}

/// An edit by somebody else.
async fn edit(client: &Client, object: &Value, patch: &Value) {
    let identity = Identity::of(object).unwrap();
    let params = PatchParams {
        field_manager: Some("somebody".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(patch);
    identity
        .api(client)
        .patch(&identity.name, &params, &patch)
        .await
        .unwrap();
}

pub(super) fn object(
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
    body: Value,
) -> Value {
    let Value::Object(body) = body else {
        panic!("an object's body is an object: {body}")
    };
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "rollout-operator", "rollout-operator.dev/pool": "p"},
        },
    });
    object.as_object_mut().unwrap().extend(body);
    object
}

/// With what the API server writes differently than we do: amounts, defaults, empty values, keys that are left out.
fn deployment(namespace: &str) -> Value {
    object(
        namespace,
        "apps/v1",
        "Deployment",
        "d",
        json!({"spec": {
            "replicas": 0,
            "paused": false,
            "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": {}},
                "spec": {
                    "enableServiceLinks": false,
                    "hostNetwork": false,
                    "securityContext": {},
                    "volumes": [
                        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
                        {"name": "plain", "emptyDir": {}},
                        {"name": "all", "projected": {"sources": [{"configMap": {"name": "x", "items": [{"key": "k", "path": "p"}]}}]}},
                    ],
                    // No node has it: whatever the replicas are, the Pods take nothing from the engines of other tests.
                    "nodeSelector": {"rollout-operator.dev/nowhere": ""},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                    "initContainers": [{"name": "side", "image": "localhost/tiny:1", "restartPolicy": "Always"}],
                    "containers": [{
                        "name": "engine",
                        "image": "localhost/tiny:1",
                        "args": [],
                        "env": [{"name": "EMPTY", "value": ""}, {"name": "ONE", "value": "1"}],
                        "ports": [{"containerPort": 30000}, {"containerPort": 30000, "protocol": "UDP", "name": "udp"}],
                        "resources": {
                            "limits": {"cpu": "1000m", "memory": "2048Mi", "nvidia.com/gpu": 1},
                            "requests": {"cpu": 0.5, "memory": "1.5Gi"},
                        },
                        "readinessProbe": {"httpGet": {"path": "/ping", "port": 30000}},
                        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm", "readOnly": false}],
                    }],
                },
            },
        }}),
    )
}

fn objects(namespace: &str) -> Vec<Value> {
    let all = |kind: &str, body: Value| {
        let version = match kind {
            "NetworkPolicy" => "networking.k8s.io/v1",
            "PodDisruptionBudget" => "policy/v1",
            _ => "v1",
        };
        object(namespace, version, kind, "o", body)
    };
    vec![
        deployment(namespace),
        all(
            "Service",
            json!({"spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": false,
                "selector": {"a": "b"},
                "ports": [{"name": "http", "port": 80, "targetPort": "x"}, {"name": "u", "port": 80, "protocol": "UDP"}],
            }}),
        ),
        all(
            "ServiceAccount",
            json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "s"}]}),
        ),
        all(
            "PodDisruptionBudget",
            json!({"spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}),
        ),
        all(
            "NetworkPolicy",
            json!({"spec": {
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 80}]}],
                "egress": [],
            }}),
        ),
        all("ConfigMap", json!({"data": {"k": "v", "empty": ""}})),
    ]
}

#[tokio::test]
async fn an_object_that_is_as_wanted_is_not_sent_not_even_by_a_process_that_has_just_started() {
    let client = client().await;
    let namespace = namespace(&client, "settled").await;
    for object in objects(&namespace) {
        let sent = applier(&client).apply(&object, None).await.unwrap();
        assert_eq!(sent, Outcome::Sent(Reason::Missing));
        let there = live(&client, &object).await;
        let again = applier(&client).apply(&object, Some(&there)).await.unwrap();
        assert_eq!(again, Outcome::Settled, "{}", object["kind"]);
        // A cache that does not have it yet.
        let unseen = applier(&client).apply(&object, None).await.unwrap();
        assert_eq!(unseen, Outcome::Settled, "{}", object["kind"]);
    }
}

#[tokio::test]
async fn what_somebody_changes_of_ours_is_repaired_once() {
    let client = client().await;
    let namespace = namespace(&client, "drift").await;
    let wanted = deployment(&namespace);
    let container = |field: &str, value: Value| json!({"spec": {"template": {"spec": {"containers": [{"name": "engine", field: value}]}}}});
    let edits = [
        container("image", json!("localhost/other:1")),
        container("env", json!([{"name": "ONE", "value": "2"}])),
        container("resources", json!({"limits": {"memory": "4Gi"}})),
        json!({"spec": {"template": {"spec": {"tolerations": [{"key": "more", "operator": "Exists"}]}}}}),
        json!({"spec": {"replicas": 1}}),
        json!({"metadata": {"labels": {"rollout-operator.dev/pool": null}}}),
        json!({"spec": {"template": {"spec": {"volumes": [{"name": "plain", "$patch": "delete"}]}}}}),
    ];
    for patch in edits {
        let applier = applier(&client);
        let first = live_or_none(&client, &wanted).await;
        applier.apply(&wanted, first.as_ref()).await.unwrap();
        edit(&client, &wanted, &patch).await;
        let wrong = live(&client, &wanted).await;
        let repaired = applier.apply(&wanted, Some(&wrong)).await.unwrap();
        assert!(
            matches!(
                repaired,
                Outcome::Sent(Reason::Changed(_) | Reason::Drifted(_))
            ),
            "{patch} was not repaired: {repaired:?}"
        );
        // The cache is behind, and then it is not.
        let behind = applier.apply(&wanted, Some(&wrong)).await.unwrap();
        assert_eq!(behind, Outcome::Settled, "{patch}");
        let right = live(&client, &wanted).await;
        let again = applier.apply(&wanted, Some(&right)).await.unwrap();
        assert_eq!(again, Outcome::Settled, "{patch}");
    }
}

async fn live_or_none(client: &Client, object: &Value) -> Option<Value> {
    let identity = Identity::of(object).unwrap();
    let found = identity.api(client).get_opt(&identity.name).await.unwrap();
    found.map(|found| serde_json::to_value(found).unwrap())
}

#[tokio::test]
async fn who_changes_it_again_and_again_meets_a_repair_that_comes_later() {
    let client = client().await;
    let namespace = namespace(&client, "fight").await;
    let wanted = deployment(&namespace);
    let applier = applier(&client);
    applier.apply(&wanted, None).await.unwrap();
    let mut repairs = 0;
    for number in 0..5 {
        edit(&client, &wanted, &json!({"spec": {"replicas": 3 + number}})).await;
        let wrong = live(&client, &wanted).await;
        match applier.apply(&wanted, Some(&wrong)).await.unwrap() {
            Outcome::Sent(Reason::Drifted(_)) => repairs += 1,
            Outcome::Later(wait) => assert!(!wait.is_zero()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(repairs, 1);
}

#[tokio::test]
async fn fields_of_another_manager_stay() {
    let client = client().await;
    let namespace = namespace(&client, "others").await;
    let mut wanted = deployment(&namespace);
    // An autoscaler has the replicas.
    wanted["spec"].as_object_mut().unwrap().remove("replicas");
    let applier = applier(&client);
    applier.apply(&wanted, None).await.unwrap();
    let theirs = json!({
        "metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "x"}, "labels": {"theirs": "1"}},
        "spec": {"replicas": 0, "template": {"spec": {"containers": [
            {"name": "injected", "image": "localhost/tiny:1"},
            {"name": "engine", "env": [{"name": "THEIRS", "value": "1"}]},
        ]}}},
    });
    edit(&client, &wanted, &theirs).await;
    let there = live(&client, &wanted).await;
    for applier in [&applier, &self::applier(&client)] {
        let outcome = applier.apply(&wanted, Some(&there)).await.unwrap();
        assert_eq!(outcome, Outcome::Settled);
    }
    // An apply that changes something leaves them too.
    wanted["metadata"]["labels"]["ours"] = json!("1");
    let outcome = applier.apply(&wanted, Some(&there)).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Sent(Reason::Changed(_))),
        "{outcome:?}"
    );
    let after = live(&client, &wanted).await;
    assert_eq!(after["spec"]["replicas"], 0);
    assert_eq!(after["metadata"]["labels"]["theirs"], "1");
    let pod = &after["spec"]["template"]["spec"];
    assert_eq!(pod["containers"].as_array().unwrap().len(), 2);
    let containers = pod["containers"].as_array().unwrap();
    let engine = containers
        .iter()
        .find(|container| container["name"] == "engine");
    assert_eq!(engine.unwrap()["env"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn what_is_no_longer_wanted_is_taken_away_also_by_the_next_process() {
    let client = client().await;
    let namespace = namespace(&client, "left").await;
    let mut wanted = deployment(&namespace);
    applier(&client).apply(&wanted, None).await.unwrap();
    let container = &mut wanted["spec"]["template"]["spec"]["containers"][0];
    container["env"].as_array_mut().unwrap().pop();
    let there = live(&client, &wanted).await;
    let outcome = applier(&client).apply(&wanted, Some(&there)).await.unwrap();
    let Outcome::Sent(Reason::Changed(Difference::LeftOver(path))) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(path, "spec.template.spec.containers[engine].env[ONE]");
    let after = live(&client, &wanted).await;
    let env = &after["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_object_of_somebody_else_is_never_written_over() {
    let client = client().await;
    let namespace = namespace(&client, "foreign").await;
    let wanted = object(
        &namespace,
        "v1",
        "ConfigMap",
        "c",
        json!({"data": {"k": "ours"}}),
    );
    let mut theirs = wanted.clone();
    theirs["metadata"]["labels"] = json!({});
    theirs["data"]["k"] = json!("theirs");
    let identity = Identity::of(&theirs).unwrap();
    let api = identity.api(&client);
    api.create(&PostParams::default(), &dynamic(&theirs))
        .await
        .unwrap();
    let read = applier(&client).apply(&wanted, None).await.unwrap_err();
    assert_eq!(read.class(), Class::Foreign, "{read}");
    assert!(matches!(read, Error::Foreign { .. }));
    // What may not be read is protected by who manages its fields.
    let unread = applier(&client).apply_unread(&wanted).await.unwrap_err();
    assert_eq!(unread.class(), Class::Foreign, "{unread}");
    assert_eq!(live(&client, &wanted).await["data"]["k"], "theirs");
}

/// Calls to the API server of a verb.
fn calls(metrics: &Metrics, verb: &str) -> u32 {
    let text = metrics.text();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("rollout_operator_api_requests_total{"))
        .filter(|line| line.contains(&format!("verb=\"{verb}\"")));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap())
        .sum()
}

#[tokio::test]
async fn what_is_not_there_is_made_by_one_call_and_what_no_cache_has_yet_is_asked_for() {
    let namespace = namespace(&client().await, "anew").await;
    let metrics = Arc::new(Metrics::default());
    let client = connection::connect(Arc::clone(&metrics)).await.unwrap();
    let wanted = object(&namespace, "v1", "ConfigMap", "c", json!({"data": {}}));
    let applier = applier(&client);
    let made = applier.apply(&wanted, None).await.unwrap();
    assert_eq!(made, Outcome::Sent(Reason::Missing));
    assert_eq!((calls(&metrics, "patch"), calls(&metrics, "get")), (1, 0));
    let behind = applier.apply(&wanted, None).await.unwrap();
    assert_eq!(behind, Outcome::Settled);
    assert_eq!((calls(&metrics, "patch"), calls(&metrics, "get")), (2, 1));
}

#[tokio::test]
async fn what_is_not_read_is_deleted_by_one_call_and_what_came_after_it_stays() {
    let namespace = namespace(&client().await, "away").await;
    let metrics = Arc::new(Metrics::default());
    let client = connection::connect(Arc::clone(&metrics)).await.unwrap();
    let secret = |name| object(&namespace, "v1", "Secret", name, json!({"data": {}}));
    let (ours, replaced) = (secret("ours"), secret("replaced"));
    let first = applier(&client);
    for wanted in [&ours, &replaced] {
        first.apply_unread(wanted).await.unwrap();
    }
    first.delete_unread(&ours).await.unwrap();
    assert!(live_or_none(&client, &ours).await.is_none());
    assert_eq!(calls(&metrics, "patch"), 0);

    let api = Identity::of(&replaced).unwrap().api(&client);
    api.delete("replaced", &DeleteParams::default())
        .await
        .unwrap();
    let theirs = dynamic(&replaced);
    api.create(&PostParams::default(), &theirs).await.unwrap();
    first.delete_unread(&replaced).await.unwrap();
    assert!(live_or_none(&client, &replaced).await.is_some());

    // The next process asks whose it is.
    applier(&client).apply_unread(&ours).await.unwrap();
    applier(&client).delete_unread(&ours).await.unwrap();
    assert!(live_or_none(&client, &ours).await.is_none());
}

#[tokio::test]
async fn a_leader_that_lost_its_lease_writes_nothing() {
    let client = client().await;
    let namespace = namespace(&client, "standby").await;
    let wanted = object(&namespace, "v1", "ConfigMap", "c", json!({"data": {}}));
    let calls = Calls::new(client.clone(), Leadership::by_election());
    let applier = Applier::new(calls, field_managers::POOL, Arc::new(Metrics::default()));
    let refused = applier.apply(&wanted, None).await.unwrap_err();
    assert!(matches!(refused, Error::NotLeading { .. }), "{refused}");
    assert!(live_or_none(&client, &wanted).await.is_none());
}
