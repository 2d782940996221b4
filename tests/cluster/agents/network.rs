//! An agent reaches its router and DNS, and of the router what belongs to its own session.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams};
use rollout_operator::api::meta::labels;
use serde_json::{Value, json};

use super::{agents, directory, ended_well, metadata, program};
use crate::runtime::controller::until;
use crate::runtime::jobs::place::Place;
use crate::runtime::pools::{condition, create};

/// A Pod that listens and is nobody's friend, as a resolver would, too.
async fn stranger(place: &Place) -> String {
    let listens = program("it", &["sandbox", ":8000"], &json!([]));
    let resolves = program("resolver", &["sandbox", ":53"], &json!([]));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": place.namespace},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [listens, resolves]},
    });
    create(&place.client, &pod).await;
    address(place, "stranger").await
}

/// What a Pod of nobody's says.
async fn said(place: &Place, name: &str, container: &Value) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": place.namespace},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    });
    create(&place.client, &pod).await;
    let pods: Api<Pod> = place.all();
    until(&format!("{name} ends"), &place.controller, async || {
        let status = pods.get(name).await.unwrap().status;
        status.is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
    })
    .await;
    pods.logs(name, &LogParams::default()).await.unwrap()
}

/// The address of a Pod that runs.
async fn address(place: &Place, name: &str) -> String {
    let pods: Api<Pod> = place.all();
    let mut address = None;
    until(&format!("{name} runs"), &place.controller, async || {
        let status = pods.get_opt(name).await.unwrap().and_then(|pod| pod.status);
        let running = status.filter(|status| status.phase.as_deref() == Some("Running"));
        address = running.and_then(|status| status.pod_ip);
        address.is_some()
    })
    .await;
    address.unwrap()
}

async fn node_address(place: &Place) -> String {
    let nodes: Api<Node> = Api::all(place.client.clone());
    let node = nodes
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0);
    let addresses = node.status.unwrap().addresses.unwrap();
    let own = addresses
        .into_iter()
        .find(|address| address.type_ == "InternalIP");
    own.unwrap().address
}

async fn engine(place: &Place) -> String {
    let selector = format!("{}=pool,{}=engine", labels::POOL, labels::COMPONENT);
    let params = ListParams::default().labels(&selector);
    let pods = place.all::<Pod>().list(&params).await.unwrap();
    address(place, &pods.items[0].name_any()).await
}

/// Addresses in the cluster, and whether an ordinary Pod of the namespace reaches them.
async fn addresses(place: &Place, stranger: &str) -> Vec<(&'static str, String, bool)> {
    let (node, engine) = (node_address(place).await, engine(place).await);
    let other = address(place, "other-driver-1").await;
    vec![
        (
            "API server",
            "kubernetes.default.svc.cluster.local.:443".to_owned(),
            true,
        ),
        ("API server of the node", format!("{node}:6443"), true),
        ("kubelet", format!("{node}:10250"), true),
        ("another pod", format!("{stranger}:8000"), true),
        ("another pod, as a resolver", format!("{stranger}:53"), true),
        (
            "state of another job's driver",
            format!("{other}:8090"),
            true,
        ),
        ("engine", format!("{engine}:30000"), false),
        ("engine's sidecar", format!("{engine}:30001"), true),
        ("router of another job", format!("{other}:8080"), false),
    ]
}

/// Requests to the session's own router, with the session's own token, and what it may answer.
const REQUESTS: [(&str, &str, &[&str]); 28] = [
    ("GET", "/health", &["200"]),
    ("GET", "/sessions/OWN/v1/models", &["200"]),
    // Another session, whose id is known: what is the launcher's or the driver's. Turns are open to whoever has the id.
    ("GET", "/sessions/OTHER", REFUSED),
    ("DELETE", "/sessions/OTHER", REFUSED),
    ("POST", "/sessions/OTHER/samples", REFUSED),
    ("POST", "/sessions/OTHER/outcome", REFUSED),
    ("POST", "/agent/sessions/OTHER/result", REFUSED),
    ("POST", "/agent/sessions/OTHER/heartbeat", REFUSED),
    ("GET", "/agent/sessions/OTHER/events", REFUSED),
    // One that nobody has.
    (
        "POST",
        "/sessions/00000000000000000000000000000000/v1/chat/completions",
        REFUSED,
    ),
    (
        "GET",
        "/sessions/00000000000000000000000000000000/v1/models",
        REFUSED,
    ),
    (
        "POST",
        "/sessions/00000000000000000000000000000000/generate",
        REFUSED,
    ),
    // Its own, but for the launcher and the driver.
    ("POST", "/agent/claim", REFUSED),
    ("POST", "/agent/sessions/OWN/result", REFUSED),
    ("POST", "/agent/sessions/OWN/heartbeat", REFUSED),
    ("POST", "/sessions/OWN/samples", REFUSED),
    ("POST", "/sessions/OWN/outcome", REFUSED),
    ("DELETE", "/sessions/OWN", REFUSED),
    ("POST", "/sessions", REFUSED),
    ("POST", "/generate", REFUSED),
    ("POST", "/v1/chat/completions", REFUSED),
    ("POST", "/fence", REFUSED),
    ("POST", "/pod-ended", REFUSED),
    ("POST", "/agent-abort", REFUSED),
    ("POST", "/abort_request", REFUSED),
    ("GET", "/demand", REFUSED),
    ("GET", "/status", REFUSED),
    ("GET", "/metrics", REFUSED),
];
const REFUSED: &[&str] = &["401", "403", "404", "405"];

/// What nobody but the driver itself reaches: the router's control port.
const DRIVERS: [(&str, &str); 3] = [
    ("control port", "DRIVER:8081"),
    ("state of the own driver", "DRIVER:8090"),
    ("agents' port", "DRIVER:8080"),
];

fn targets(addresses: &[(&'static str, String, bool)]) -> Vec<Value> {
    let mut targets: Vec<_> = addresses
        .iter()
        .map(|(name, address, _)| json!({"name": name, "address": address}))
        .collect();
    targets.push(json!({"name": "itself", "address": "SELF:9999"}));
    targets.push(json!({"name": "pod of another session", "address": "PEER:9999"}));
    for (name, address) in DRIVERS {
        targets.push(json!({"name": name, "address": address}));
    }
    for (method, path, _) in REQUESTS {
        let url = format!("ROUTER{path}");
        targets.push(json!({"name": format!("{method} {path}"), "method": method, "url": url}));
    }
    targets
}

/// For two Pods that wait for each other, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(4);

#[tokio::test]
async fn an_agent_reaches_its_own_session_and_nothing_else() {
    let place = Place::new("reach").await;
    directory(&place, "marks").await;
    let stranger = stranger(&place).await;
    let idle = json!({"generate": Place::agentic("/bin/busybox sleep 3600")});
    place.job("other", &idle).await;
    place.becomes("other", "Sampling", "True/AsExpected").await;
    let addresses = addresses(&place, &stranger).await;

    // An ordinary Pod tells that somebody listens.
    let asked: Vec<_> = addresses
        .iter()
        .map(|(name, address, _)| json!({"name": name, "address": address}))
        .collect();
    let asks = json!([{"name": "PROBE_TARGETS", "value": json!(asked).to_string()}]);
    let found = said(&place, "ordinary", &program("it", &["probe"], &asks)).await;
    let found: Value = serde_json::from_str(&found).unwrap();
    for (name, address, open) in &addresses {
        let wanted = if *open { "reached" } else { "refused" };
        assert_eq!(found[name], wanted, "{name} at {address}: {found}");
    }

    let asks = json!([{"name": "PROBE_TARGETS", "value": json!(targets(&addresses)).to_string()}]);
    let agentic = agents(&["probe"], &asks, "marks");
    let spec = json!({
        "generate": {"agentic": agentic},
        "rollout": {"batchSize": 1, "samplesPerPrompt": 2, "concurrency": {"sessions": 2}},
    });
    place.job("job", &spec).await;
    let driver = address(&place, "job-driver-1").await;
    let script = format!(
        "cd /data/marks && /bin/busybox printf %s {driver} >draft && /bin/busybox mv draft job.driver"
    );
    let command = ["/bin/busybox", "sh", "-c", &script];
    place.run("tell", "localhost/tiny:1", &command, 65532).await;
    place
        .comes_true("the job is complete", LIMIT, async || {
            condition(&place.jobs, "job", "Complete").await == "True/TargetReached"
        })
        .await;
    let sessions = &place.status("job").await["progress"]["sessions"];
    assert_eq!(ended_well(sessions), 2, "{sessions}");
    assert_eq!(sessions["infraFailed"], 0, "{sessions}");
    for metadata in metadata(&place, "job").await {
        let found = &metadata["found"];
        for (name, address, _) in &addresses {
            assert_eq!(found[name], "refused", "{name} at {address}: {found}");
        }
        assert_eq!(found["itself"], "reached", "{found}");
        assert_eq!(found["pod of another session"], "refused", "{found}");
        assert_eq!(found["credentials"], "false", "{found}");
        assert_eq!(found["agents' port"], "reached", "{found}");
        assert_eq!(found["control port"], "refused", "{found}");
        assert_eq!(found["state of the own driver"], "refused", "{found}");
        for (method, path, wanted) in REQUESTS {
            let name = format!("{method} {path}");
            let got = found[&name].as_str().unwrap_or("nothing");
            assert!(wanted.contains(&got), "{name}: {got}, {found}");
        }
    }
    place.verify().await;
    place.end().await;
}
