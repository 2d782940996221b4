//! What the sidecars beside engines say: pauses of others, and drains before they are in DNS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use rollout_router::{Config, Resolver};
use serde_json::{Value, json};
use sglang_simulator::Simulator;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{Bed, JOB, engine_config, eventually, user};

/// An engine with a sidecar, at an address of its own.
struct Pod {
    simulator: Simulator,
    engine: SocketAddr,
    /// What the sidecar says; null: it fails.
    says: Arc<Mutex<Value>>,
    /// The headers of the last question.
    asked: Arc<Mutex<HeaderMap>>,
    tasks: JoinSet<()>,
}

impl Pod {
    async fn start(host: &str, sidecar: TcpListener) -> Self {
        let simulator = Simulator::new(engine_config()).unwrap();
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let engine = listener.local_addr().unwrap();
        let says = Arc::new(Mutex::new(
            json!({"paused": false, "draining": false, "version": "1"}),
        ));
        let asked = Arc::<Mutex<HeaderMap>>::default();
        let (word, headers) = (Arc::clone(&says), Arc::clone(&asked));
        let state = move |these: HeaderMap| {
            *headers.lock() = these;
            let word = word.lock().clone();
            async move {
                match word {
                    Value::Null => Err(http::StatusCode::INTERNAL_SERVER_ERROR),
                    word => Ok(axum::Json(word)),
                }
            }
        };
        let routes = axum::Router::new().route("/state", axum::routing::get(state));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(sidecar, routes).await.unwrap() });
        let serving = simulator.clone();
        tasks.spawn(async move {
            let _ = serving.serve(listener, CancellationToken::new()).await;
        });
        Self {
            simulator,
            engine,
            says,
            asked,
            tasks,
        }
    }

    fn says(&self, word: Value) {
        *self.says.lock() = word;
    }

    fn requests(&self) -> u64 {
        let paths = self.simulator.state().paths;
        paths
            .get("/v1/chat/completions")
            .map_or(0, |asked| asked.requests)
    }
}

/// Two pods whose sidecars listen on the same port, and a router that finds them by name.
async fn two() -> (Bed, [Pod; 2]) {
    let (first, second) = loop {
        let first = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = TcpListener::bind(("127.0.0.3", port)).await {
            break (first, second);
        }
    };
    let port = first.local_addr().unwrap().port();
    let pods = [
        Pod::start("127.0.0.2", first).await,
        Pod::start("127.0.0.3", second).await,
    ];
    let addresses: Vec<_> = pods.iter().map(|pod| pod.engine).collect();
    let bed = Bed::untold(Vec::new(), |config: &mut Config, _| {
        config.engine_service = Some("engines:30000".parse().unwrap());
        config.resolver = Resolver::new(move |_| {
            let addresses = addresses.clone();
            async move { Ok(addresses) }
        });
        config.engine_state_port = Some(port);
        config.engine_key = Some("the engines' own".to_owned());
        config.times.lookup = Duration::from_millis(20);
    })
    .await;
    (bed, pods)
}

/// Waits until `/status` says this of the first pod.
async fn first_is(bed: &Bed, pods: &[Pod], field: &str, wanted: &Value) {
    let url = format!("http://{}", pods[0].engine);
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        let status = bed.control().get("/status").await.ok();
        let engines = status["engines"].as_array().unwrap().clone();
        let first = engines.iter().find(|engine| engine["url"] == url.as_str());
        if first.is_some_and(|first| first[field] == *wanted) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Turns of sessions that are new; answers how many of them each pod got.
async fn turns(bed: &Bed, pods: &[Pod; 2]) -> [u64; 2] {
    let before = [pods[0].requests(), pods[1].requests()];
    for _ in 0..6 {
        let id = bed.session(json!({"job": JOB})).await;
        let hello = json!({"messages": [user("hi")], "max_tokens": 3, "ignore_eos": true});
        bed.chat(&id, hello).await.ok();
    }
    [
        pods[0].requests() - before[0],
        pods[1].requests() - before[1],
    ]
}

#[tokio::test]
async fn new_work_goes_where_it_need_not_wait() {
    let (bed, pods) = two().await;
    first_is(&bed, &pods, "weight_version", &json!("1")).await;
    assert_eq!(turns(&bed, &pods).await, [3, 3]);
    pods[0].says(json!({"paused": true, "version": "2"}));
    first_is(&bed, &pods, "paused", &json!(true)).await;
    first_is(&bed, &pods, "weight_version", &json!("2")).await;
    assert_eq!(turns(&bed, &pods).await, [0, 6]);
    // When all are, one of them gets it all the same.
    pods[1].says(json!({"paused": true}));
    eventually("the second is asked", || !pods[1].asked.lock().is_empty()).await;
    let [first, second] = turns(&bed, &pods).await;
    assert_eq!(first + second, 6);
    pods[0].says(json!({"paused": false}));
    first_is(&bed, &pods, "paused", &json!(false)).await;
    assert!(turns(&bed, &pods).await[0] > 0);
    assert!(pods[0].asked.lock().get("authorization").is_none());
}

#[tokio::test]
async fn an_engine_that_is_about_to_leave_gets_nothing_new_and_is_not_forgotten() {
    let (bed, pods) = two().await;
    first_is(&bed, &pods, "draining", &json!(false)).await;
    pods[0].says(json!({"draining": true}));
    first_is(&bed, &pods, "draining", &json!(true)).await;
    assert_eq!(turns(&bed, &pods).await, [0, 6]);
    // DNS has it still, so it is not one that left: its word is remembered over lookups and probes.
    first_is(&bed, &pods, "draining", &json!(true)).await;
    assert_eq!(turns(&bed, &pods).await, [0, 6]);
    // The pod goes on: its sidecar is a new process.
    pods[0].says(json!({"draining": false}));
    first_is(&bed, &pods, "draining", &json!(false)).await;
    // It has the fewest sessions now.
    assert_eq!(turns(&bed, &pods).await, [6, 0]);
}

#[tokio::test]
async fn a_sidecar_that_fails_holds_up_no_engine() {
    let (bed, mut pods) = two().await;
    pods[0].says(json!({"paused": true, "draining": true}));
    first_is(&bed, &pods, "draining", &json!(true)).await;
    pods[0].says(Value::Null);
    first_is(&bed, &pods, "draining", &json!(false)).await;
    first_is(&bed, &pods, "paused", &json!(false)).await;
    assert_eq!(turns(&bed, &pods).await, [3, 3]);
    pods[0].says(json!({"paused": true}));
    first_is(&bed, &pods, "paused", &json!(true)).await;
    // What is not JSON says as little as nothing.
    pods[0].says(json!("hello"));
    first_is(&bed, &pods, "paused", &json!(false)).await;
    pods[1].tasks.abort_all();
}
