//! The same pods before the real router and a simulated engine: what the driver sees of them.

use reqwest::{Client, Method};
use rollout_router::{Config as RouterConfig, Holder, Listeners, Router};
use serde_json::{Value, json};
use sglang_simulator::Simulator;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    pod::{ONE, Pod, Shape},
    router::PATIENCE,
};

struct Rollout {
    agents_url: String,
    control_url: String,
    http: Client,
    runtime: Option<Runtime>,
}

impl Drop for Rollout {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A listener of `runtime`, with its address as a URL.
async fn listen(runtime: &Runtime) -> (TcpListener, String) {
    let listener = runtime
        .spawn(TcpListener::bind("127.0.0.1:0"))
        .await
        .unwrap()
        .unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

impl Rollout {
    async fn start() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let config = serde_json::from_value(json!({"timeScale": 1000})).unwrap();
        let simulator = Simulator::new(config).unwrap();
        let (engine, engine_url) = listen(&runtime).await;
        runtime.spawn(async move { simulator.serve(engine, CancellationToken::new()).await });
        let mut config = RouterConfig::new([engine_url]);
        config.claim_secret = Some("secret".to_owned());
        let router = Router::new(config).unwrap();
        let (agents, agents_url) = listen(&runtime).await;
        let (control, control_url) = listen(&runtime).await;
        runtime.spawn(async move {
            router
                .serve(Listeners { agents, control }, CancellationToken::new())
                .await
        });
        Self {
            agents_url,
            control_url,
            http: Client::new(),
            runtime: Some(runtime),
        }
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = self
            .http
            .request(method, format!("{}{path}", self.control_url))
            .json(body);
        let response = timeout(PATIENCE, request.send())
            .await
            .expect("an answer")
            .unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    async fn session(&self) -> String {
        let body = json!({"job": "job", "rollout_id": 0, "assign": true, "deadline_seconds": 60, "metadata": {"task": 7},
            "prompt": [{"role": "user", "content": "2+2?"}], "request_kwargs": {"max_tokens": 8}});
        let created = self.call(Method::POST, "/sessions", &body).await;
        created["session_id"].as_str().unwrap().to_owned()
    }

    /// The outcomes of so many sessions, by id.
    async fn outcomes(&self, count: usize) -> Vec<Value> {
        let mut found = Vec::new();
        let mut after = 0;
        while found.len() < count {
            let path = format!("/outcomes?job=job&after={after}&wait_seconds=5");
            let answer = self.call(Method::GET, &path, &json!({})).await;
            found.extend(answer["outcomes"].as_array().unwrap().iter().cloned());
            after = answer["next"].as_i64().unwrap();
        }
        found
    }

    fn pod(&self, slot: u32, shape: Shape, path: &str) -> Pod {
        let holder = Holder {
            job: "job".to_owned(),
            slot: slot.to_string(),
            generation: 1,
        };
        Pod::function_of(&self.agents_url, &holder.token("secret"), shape, path)
    }
}

#[tokio::test]
async fn an_agents_turn_becomes_a_sample() {
    let rollout = Rollout::start().await;
    let session = rollout.session().await;
    let mut pod = rollout.pod(0, ONE, "miles_agent.run");
    let outcome = rollout.outcomes(1).await.remove(0);
    assert_eq!(outcome["session_id"], session);
    assert_eq!(outcome["outcome"], "completed", "{outcome:#}");
    assert_eq!(outcome["turns"], 1);
    assert_eq!(outcome["metadata"]["reward"], 1.0);
    assert_eq!(
        outcome["metadata"]["seen"],
        json!(["session_server_id", "session_server_instance_id", "task"])
    );
    let path = format!("/sessions/{session}/samples");
    let response = rollout
        .http
        .post(format!("{}{path}", rollout.control_url))
        .header("accept", "application/json");
    let samples: Value = response.send().await.unwrap().json().await.unwrap();
    let sample = &samples["samples"][0];
    assert!(
        sample["response_length"].as_u64().unwrap() > 0,
        "{samples:#}"
    );
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn the_hook_is_counted_once_per_process_and_pods_end_when_the_rollout_is_closed() {
    let rollout = Rollout::start().await;
    for _ in 0..4 {
        rollout.session().await;
    }
    let shape = Shape {
        concurrent: 2,
        sessions_per_pod: 0,
    };
    let mut pods = [
        rollout.pod(0, shape, "waiting_agent.run"),
        rollout.pod(1, shape, "waiting_agent.run"),
    ];
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let status = rollout
            .call(Method::GET, "/demand?job=job", &json!({}))
            .await;
        if status["assigned"] == 4 {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{status}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let fence = rollout
        .call(
            Method::POST,
            "/fence",
            &json!({"job": "job", "deadline_seconds": 5}),
        )
        .await;
    assert_eq!(fence["sessions"], 4, "{fence}");
    let body = json!({"job": "job", "reason": "enough", "timeout_seconds": 20, "drain_seconds": 0.2, "args": {"rollout_id": 3}});
    let abort = rollout.call(Method::POST, "/agent-abort", &body).await;
    assert_eq!(abort["launchers"], 2, "{abort}");
    assert_eq!(
        abort["hooks"],
        json!({"succeeded": 2, "none": 0, "failed": 0, "timed_out": 0}),
        "{abort}"
    );
    for outcome in rollout.outcomes(4).await {
        // They wait until they are cancelled, at the drain's end.
        assert_eq!(outcome["outcome"], "aborted", "{outcome:#}");
    }
    for pod in &mut pods {
        assert!(pod.ended_well().await);
    }
}

#[tokio::test]
async fn a_token_of_nobody_ends_the_pod_with_an_error() {
    let rollout = Rollout::start().await;
    let mut pod = Pod::function_of(
        &rollout.agents_url,
        "job/0/1/c0ffee",
        ONE,
        "miles_agent.run",
    );
    assert!(!pod.ended_well().await);
}
