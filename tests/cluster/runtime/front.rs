//! The pool's own router, seen from its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::field::{Field, small_engines};

/// The router's control port behind its Service, and the token that it asks for.
async fn front(field: &Field, pool: &str) -> (String, String) {
    let name = format!("{pool}-router");
    let services: Api<Service> = field.all();
    let address = services.get(&name).await.unwrap().spec.unwrap().cluster_ip;
    let secrets: Api<Secret> = field.all();
    let data = secrets.get(&name).await.unwrap().data.unwrap();
    let token = String::from_utf8(data["control-token"].0.clone()).unwrap();
    (format!("http://{}:8081", address.unwrap()), token)
}

/// Clients that ask one thing after the other, and keep their connections.
struct Clients {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

impl Clients {
    fn start(count: usize, url: &str, token: &str) -> Self {
        let mut clients = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            failures: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..count {
            let (stop, answered) = (Arc::clone(&clients.stop), Arc::clone(&clients.answered));
            let failures = Arc::clone(&clients.failures);
            let (url, token) = (format!("{url}/generate"), token.to_owned());
            clients.tasks.spawn(async move {
                let client = reqwest::Client::builder().no_proxy().build().unwrap();
                let body = json!({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 8, "ignore_eos": true}});
                while !stop.load(Ordering::SeqCst) {
                    let request = client.post(&url).bearer_auth(&token).json(&body);
                    match request.timeout(Duration::from_secs(30)).send().await {
                        Ok(answer) if answer.status().is_success() => {
                            answer.bytes().await.unwrap();
                            answered.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(answer) => {
                            let status = answer.status();
                            let text = answer.text().await.unwrap_or_default();
                            failures.lock().push(format!("{status}: {text}"));
                        }
                        Err(error) => failures.lock().push(format!("{error:?}")),
                    }
                }
            });
        }
        clients
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    async fn stop(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut *self.failures.lock())
    }
}

/// Names of the router's Pods, those that leave too.
async fn routers(field: &Field) -> Vec<String> {
    let those = ListParams::default().labels("rollout-operator.dev/component=router");
    let pods = field.all::<Pod>().list(&those).await.unwrap();
    pods.into_iter().map(|pod| pod.name_any()).collect()
}

#[tokio::test]
async fn clients_of_the_pools_router_notice_nothing_of_its_update() {
    let field = Field::new("front").await;
    let mut spec = small_engines(2, &json!({"timeScale": 4}));
    // Two seconds for one request: several are under way whenever the router is told to stop.
    spec["engine"]["simulator"]["decodeTokensPerSecond"] = json!(1);
    spec["router"] = json!({"replicas": 1});
    field.pool("p", &spec).await;
    field.pool_becomes("p", "Ready", "True/AsExpected").await;
    let (url, token) = front(&field, "p").await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let status = || async {
        let asked = client.get(format!("{url}/status")).bearer_auth(&token);
        let answer = asked.timeout(Duration::from_secs(5)).send().await.ok()?;
        answer.json::<Value>().await.ok()
    };
    field
        .until("the router knows both engines", async || {
            let engines = status().await.map(|status| status["engines"].clone());
            engines.is_some_and(|engines| engines.as_array().is_some_and(|all| all.len() == 2))
        })
        .await;
    let clients = Clients::start(4, &url, &token);
    field
        .until("clients are answered", async || clients.answered() > 4)
        .await;
    let before = routers(&field).await;
    assert_eq!(before.len(), 1, "{before:?}");
    let edit = json!({"spec": {"router": {"template": {"metadata": {"annotations": {"example.com/edit": "1"}}}}}});
    field.edit("p", &edit).await;
    field
        .until("another router is there alone", async || {
            let now = routers(&field).await;
            now.len() == 1 && now != before
        })
        .await;
    let then = clients.answered();
    field
        .until("clients are answered by it", async || {
            clients.answered() > then + 4
        })
        .await;
    assert_eq!(clients.stop().await, [""; 0]);
    // Both engines had work, and engines were not touched.
    let pool = field.pool_status("p").await;
    assert_eq!(pool["readyReplicas"], 2, "{pool}");
    field.end().await;
}

#[tokio::test]
async fn a_pool_tells_the_versions_of_its_engines_and_which_one_is_paused() {
    let field = Field::new("states").await;
    let mut spec = small_engines(2, &json!({"timeScale": 4}));
    // The test itself pauses an engine.
    spec["networkPolicy"] = json!({"enabled": false});
    field.pool("p", &spec).await;
    field.pool_becomes("p", "Ready", "True/AsExpected").await;
    let told = async |what: &str, paused: usize| {
        field
            .until(what, async || {
                let status = field.pool_status("p").await;
                let engines = status["engines"].as_array().cloned().unwrap_or_default();
                let known = engines.iter().filter(|engine| {
                    engine["version"] == "0.5.23" && engine["weightVersion"] == "default"
                });
                let stopped = engines.iter().filter(|engine| engine["paused"] == true);
                known.count() == 2 && stopped.count() == paused
            })
            .await;
    };
    told("both engines are known", 0).await;
    let status = field.pool_status("p").await;
    assert_eq!(status["display"]["weights"], "default", "{status}");
    let engine = status["engines"][0]["url"].as_str().unwrap().to_owned();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let tell = async |path: &str| {
        let request = client
            .post(format!("{engine}{path}"))
            .json(&json!({"mode": "in_place"}));
        let answer = request.timeout(Duration::from_secs(10)).send().await;
        assert!(answer.unwrap().status().is_success(), "{path}");
    };
    tell("/pause_generation").await;
    told("one engine is paused", 1).await;
    // A pause is no failure: the pool stays ready.
    let said = field.pool_status("p").await;
    assert_eq!(said["readyReplicas"], 2, "{said}");
    tell("/continue_generation").await;
    told("none is paused", 0).await;
    field.end().await;
}
