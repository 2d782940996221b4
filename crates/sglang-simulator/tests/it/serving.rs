//! Over a socket: connections, death, draining.

use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Config, Fault, FaultKind, Simulator};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::simulator;

const DEADLINE: Duration = Duration::from_secs(30);

struct Served {
    simulator: Simulator,
    url: String,
    cancel: CancellationToken,
    server: JoinSet<()>,
    client: reqwest::Client,
}

async fn serve(config: Config) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (simulator, cancel) = (simulator(config), CancellationToken::new());
    let mut server = JoinSet::new();
    let (serving, stop) = (simulator.clone(), cancel.clone());
    server.spawn(async move { serving.serve(listener, stop).await.unwrap() });
    Served {
        simulator,
        url,
        cancel,
        server,
        client: reqwest::Client::builder().no_proxy().build().unwrap(),
    }
}

impl Served {
    async fn generate(&self, rid: &str, tokens: u32) -> reqwest::Result<Value> {
        let body = json!({"rid": rid, "input_ids": [1, 5], "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}});
        self.post_generate(&body).await?.json().await
    }

    async fn post_generate(&self, body: &Value) -> reqwest::Result<reqwest::Response> {
        let request = self.client.post(format!("{}/generate", self.url));
        request.json(body).send().await
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        let request = self.client.get(format!("{}{path}", self.url));
        request.send().await.unwrap()
    }

    async fn in_flight(&self, count: usize) {
        let reached = async {
            while self.simulator.state().in_flight.len() != count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(DEADLINE, reached)
            .await
            .expect("the requests arrive");
    }

    async fn ended(mut self) {
        timeout(DEADLINE, self.server.join_next())
            .await
            .expect("the server ends")
            .unwrap()
            .unwrap();
    }
}

#[tokio::test]
async fn answers_have_uvicorns_headers() {
    let served = serve(Config {
        time_scale: 100,
        ..Config::default()
    })
    .await;
    let response = served.get("/model_info").await;
    let headers = response.headers();
    assert_eq!(headers["server"], "uvicorn");
    assert_eq!(headers["vary"], "Origin");
    assert_eq!(headers["content-type"], "application/json");
    assert!(headers.contains_key("content-length") && headers.contains_key("date"));
}

#[tokio::test]
async fn death_closes_connections_and_the_door() {
    let served = serve(Config::default()).await;
    let killed = async {
        served.in_flight(1).await;
        served.simulator.kill();
    };
    let (answer, ()) = tokio::join!(served.generate("a", 20_000), killed);
    assert!(answer.is_err());
    assert!(served.generate("b", 1).await.unwrap_err().is_connect());
    served.ended().await;
}

#[tokio::test]
async fn a_refusal_is_a_closed_connection_and_a_cut_is_half_a_body() {
    let served = serve(Config::default()).await;
    served
        .simulator
        .add_fault(Fault::new("/generate", FaultKind::Refuse).times(1));
    let refused = served.generate("a", 1).await.unwrap_err();
    assert!(refused.is_request() && !refused.is_connect(), "{refused:?}");
    served
        .simulator
        .add_fault(Fault::new("/generate", FaultKind::CutBody));
    let body = json!({"input_ids": [1, 5], "sampling_params": {"max_new_tokens": 2}});
    let response = served.post_generate(&body).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.bytes().await.is_err());
}

#[tokio::test]
async fn the_end_waits_for_what_is_in_flight() {
    let served = serve(Config::default()).await;
    let stopped = async {
        served.in_flight(1).await;
        served.cancel.cancel();
        let health = served.get("/health").await;
        assert_eq!(health.status(), 503, "draining");
    };
    let (answer, ()) = tokio::join!(served.generate("a", 100), stopped);
    assert_eq!(answer.unwrap()["meta_info"]["completion_tokens"], 100);
    served.ended().await;
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_ends_its_request() {
    let served = serve(Config::default()).await;
    let body = json!({"rid": "s", "input_ids": [1, 5], "stream": true, "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}});
    let mut response = served.post_generate(&body).await.unwrap();
    response.chunk().await.unwrap().expect("a first event");
    drop(response);
    served.in_flight(0).await;
    let state = served.simulator.state();
    assert_eq!(
        (state.aborted_rids, state.clients_left),
        (vec!["s".to_owned()], 1)
    );
}
