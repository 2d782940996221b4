//! An engine behind a URL, simulated or real, and how a case talks to it.

use std::fmt::Debug;
use std::time::Duration;

use rollout_tokenizer::Tokenizer;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::sse::Events;

/// For anything that an engine should have done by now.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
/// Between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// As `tests/sglang/launch.sh` starts the real engine.
pub(crate) const MAX_RUNNING: usize = 16;
/// See [`MAX_RUNNING`].
pub(crate) const CONTEXT: usize = 4096;

/// An engine and a client of it.
pub(crate) struct Engine {
    base: String,
    client: reqwest::Client,
    /// The tokenizer that both engines have.
    pub(crate) tokenizer: Tokenizer,
}

/// One whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The body of a success.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }
}

/// A request under way; dropping it closes its connection.
pub(crate) struct Pending(JoinSet<Answer>);

impl Pending {
    /// The answer.
    pub(crate) async fn answer(mut self) -> Answer {
        let answer = timeout(DEADLINE, self.0.join_next())
            .await
            .expect("no answer in time");
        answer.unwrap().unwrap()
    }

    /// Whether the answer has arrived.
    pub(crate) fn is_done(&mut self) -> bool {
        match self.0.try_join_next() {
            None => false,
            Some(answer) => {
                let answer = answer.unwrap();
                self.0.spawn(async move { answer });
                true
            }
        }
    }
}

/// Requests of the engine's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
}

impl Engine {
    pub(crate) fn new(base: String) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .pool_idle_timeout(Duration::from_secs(1))
            .build()
            .unwrap();
        Self {
            base,
            client,
            tokenizer: Tokenizer::builtin().unwrap(),
        }
    }

    async fn send(request: reqwest::RequestBuilder) -> Answer {
        let exchange = async {
            let response = request.send().await.unwrap();
            Answer {
                status: response.status().as_u16(),
                text: response.text().await.unwrap(),
            }
        };
        timeout(DEADLINE, exchange)
            .await
            .expect("no answer in time")
    }

    /// `GET`.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        Self::send(self.client.get(format!("{}{path}", self.base))).await
    }

    /// `POST` of JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        Self::send(self.client.post(format!("{}{path}", self.base)).json(body)).await
    }

    /// `POST` of raw bytes.
    pub(crate) async fn post_raw(
        &self,
        path: &str,
        content_type: &str,
        body: &'static str,
    ) -> Answer {
        let request = self.client.post(format!("{}{path}", self.base));
        Self::send(request.header("content-type", content_type).body(body)).await
    }

    /// `POST` without a body.
    pub(crate) async fn post_nothing(&self, path: &str) -> Answer {
        Self::send(self.client.post(format!("{}{path}", self.base))).await
    }

    /// Starts a `POST` of JSON and does not wait for its answer.
    pub(crate) fn start(&self, path: &str, body: &Value) -> Pending {
        let request = self.client.post(format!("{}{path}", self.base)).json(body);
        let mut set = JoinSet::new();
        set.spawn(Self::send(request));
        Pending(set)
    }

    /// A successful `/generate`.
    #[track_caller]
    pub(crate) fn generate(&self, body: &Value) -> impl Future<Output = Value> {
        let request = self
            .client
            .post(format!("{}/generate", self.base))
            .json(body);
        async { Self::send(request).await.ok() }
    }

    /// A successful chat completion.
    pub(crate) async fn chat(&self, body: &Value) -> Value {
        self.post("/v1/chat/completions", body).await.ok()
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Events {
        let response = self
            .client
            .post(format!("{}{path}", self.base))
            .json(body)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        assert!(
            response.headers()["content-type"]
                .to_str()
                .unwrap()
                .starts_with("text/event-stream")
        );
        Events::new(response)
    }

    /// All events of a stream, the final `[DONE]` taken off.
    pub(crate) async fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut stream = self.stream(path, body).await;
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event);
        }
        events
    }

    /// What the scheduler is doing.
    pub(crate) async fn load(&self) -> Load {
        let loads = self.get("/v1/loads").await.ok();
        let count =
            |field: &str| usize::try_from(loads["loads"][0][field].as_u64().unwrap()).unwrap();
        Load {
            running: count("num_running_reqs"),
            waiting: count("num_waiting_reqs"),
        }
    }

    /// Waits for so many running and waiting requests.
    pub(crate) async fn until_load(&self, running: usize, waiting: usize) {
        let wanted = Load { running, waiting };
        self.until(&format!("{wanted:?}"), |load| load == wanted)
            .await;
    }

    /// Waits until the scheduler does what is said.
    pub(crate) async fn until(&self, wanted: &str, condition: impl Fn(Load) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let load = self.load().await;
            if condition(load) {
                return;
            }
            assert!(Instant::now() < deadline, "{load:?}, not {wanted}");
            sleep(INTERVAL).await;
        }
    }

    /// Empties the prefix cache. The scheduler may take a moment to see that a request that was answered is over.
    pub(crate) async fn flush(&self) -> Answer {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let answer = self.post_nothing("/flush_cache").await;
            if answer.status == 200 {
                return answer;
            }
            assert!(
                Instant::now() < deadline,
                "the cache cannot be flushed: {answer:?}"
            );
            sleep(INTERVAL).await;
        }
    }

    /// Aborts by rid, or by whatever the body says.
    pub(crate) async fn abort(&self, body: &Value) {
        let answer = self.post("/abort_request", body).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    }

    /// Pauses in a mode.
    pub(crate) async fn pause(&self, mode: &str) {
        let answer = self
            .post("/pause_generation", &json!({"mode": mode}))
            .await
            .ok();
        assert_eq!(
            answer,
            json!({"message": "Generation paused successfully.", "status": "ok"})
        );
    }

    /// Ends a pause.
    pub(crate) async fn resume(&self) {
        let answer = self.post("/continue_generation", &json!({})).await.ok();
        assert_eq!(
            answer,
            json!({"message": "Generation continued successfully.", "status": "ok"})
        );
    }

    /// Ids of a text.
    pub(crate) fn ids(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text).unwrap()
    }

    /// A request that runs for seconds, whatever the engine.
    pub(crate) fn long(&self, rid: &str) -> Value {
        json!({
            "rid": rid,
            "input_ids": self.ids("A long story."),
            "return_logprob": true,
            "sampling_params": {"max_new_tokens": 3000, "temperature": 0, "ignore_eos": true},
        })
    }

    /// A request that runs for a second or more, of which [`MAX_RUNNING`] fit into the memory of the engine at once.
    pub(crate) fn medium(&self, rid: &str) -> Value {
        let mut body = self.long(rid);
        body["sampling_params"]["max_new_tokens"] = json!(900);
        body
    }

    /// Brings the engine to where a case may start: not paused, idle, nothing cached.
    pub(crate) async fn reset(&self) {
        self.resume().await;
        let deadline = Instant::now() + DEADLINE;
        loop {
            self.abort(&json!({"abort_all": true})).await;
            if self.load().await
                == (Load {
                    running: 0,
                    waiting: 0,
                })
                && self.post_nothing("/flush_cache").await.status == 200
            {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the engine does not become idle: {:?}",
                self.load().await
            );
            sleep(INTERVAL).await;
        }
    }
}

/// The ids of a JSON array.
#[track_caller]
pub(crate) fn ids_of(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Log-probabilities and ids of triples `[log-probability, id, text]`.
#[track_caller]
pub(crate) fn triples(value: &Value) -> Vec<(Option<f64>, u32, Option<String>)> {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Equal, with the context of the whole.
#[track_caller]
pub(crate) fn same<T: PartialEq + Debug>(left: &T, right: &T, whole: &Value) {
    assert_eq!(left, right, "in {whole}");
}
