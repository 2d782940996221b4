//! What a router relies on when it ends requests and when it streams, at the simulated engine always, and at a real SGLang when
//! `ROLLOUT_SGLANG_URL` names one (`tests/sglang/run.sh` starts it and runs this). Under CI the real half must run: without the variable
//! it fails.
//!
//! The engine is asked what it works on (`/v1/loads`): a router that only believes that it is rid of a request proves nothing.

use std::time::Duration;

use futures_util::future::join_all;
use rollout_router::{Config, Router};
use rollout_session::SampleStatus;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::stream::chunks;
use crate::support::{Bed, Engine, JOB, Served, engine_config, raw_post, user};

/// As `tests/sglang/launch.sh` starts the real one. Its memory has room for five requests of the length that is asked for here.
const MAX_RUNNING: usize = 16;
const DEADLINE: Duration = Duration::from_mins(2);

/// There is one real engine.
static REAL_ENGINE: Mutex<()> = Mutex::const_new(());

macro_rules! cases {
    ($($case:ident,)+) => {
        mod simulated_engine {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let engine = super::simulated().await;
                super::$case(&super::Case::at(&engine.url)).await;
            })+
        }

        mod real_engine {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(url) = super::real() else { return };
                let _alone = super::REAL_ENGINE.lock().await;
                super::$case(&super::Case::at(&url)).await;
            })+
        }
    };
}

cases! {
    nothing_runs_after_a_fence,
    a_fence_in_the_middle_of_arrivals_catches_all_of_them,
    clients_that_vanish_free_their_slots,
    a_streamed_turn_is_recorded_like_a_whole_one,
    a_stream_that_ends_by_itself_has_all_its_tokens,
    a_fence_ends_streams_with_what_they_have,
}

async fn simulated() -> Engine {
    let mut config = sglang_simulator::Config {
        time_scale: 1,
        max_running_requests: u32::try_from(MAX_RUNNING).unwrap(),
        ..engine_config()
    };
    config.server.context_length = 4096;
    Engine::start(config).await
}

fn real() -> Option<String> {
    let url = std::env::var("ROLLOUT_SGLANG_URL").ok();
    assert!(
        url.is_some() || std::env::var_os("CI").is_none(),
        "ROLLOUT_SGLANG_URL is not set, and under CI the real engine is not optional: run tests/sglang/run.sh"
    );
    url.map(|url| url.trim_end_matches('/').to_owned())
}

/// A router in front of the engine.
struct Case {
    bed: Bed,
    engine: String,
}

impl Case {
    fn at(url: &str) -> Self {
        let mut config = Config::new([url]);
        config.times.abort_repeat = Duration::from_millis(200);
        Self {
            bed: Bed {
                engines: Vec::new(),
                router: Router::new(config).unwrap(),
            },
            engine: url.trim_start_matches("http://").to_owned(),
        }
    }

    async fn sessions(&self, count: usize) -> Vec<String> {
        join_all((0..count).map(|_| self.bed.session(json!({"job": JOB})))).await
    }

    async fn fence(&self) -> Value {
        let body = json!({"job": JOB, "deadline_seconds": 60});
        self.bed.control().post("/fence", body).await.ok()
    }

    /// Requests that the engine runs, and those in its queue, by its own word.
    async fn load(&self) -> (u64, u64) {
        let mut stream = TcpStream::connect(&self.engine).await.unwrap();
        let request = "GET /v1/loads HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let json = &answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()];
        let loads: Value = serde_json::from_str(json).unwrap();
        let loads = loads["loads"].as_array().unwrap();
        let sum = |field: &str| loads.iter().map(|load| load[field].as_u64().unwrap()).sum();
        (sum("num_running_reqs"), sum("num_waiting_reqs"))
    }

    async fn until(&self, what: &str, holds: impl Fn((u64, u64)) -> bool) {
        let wait = async {
            while !holds(self.load().await) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let done = tokio::time::timeout(DEADLINE, wait).await;
        assert!(
            done.is_ok(),
            "{what}: the engine has {:?}",
            self.load().await
        );
    }

    /// Waits until the router has sent so many requests on, or is about to.
    async fn has_in_flight(&self, count: usize) {
        let wait = async {
            while self.bed.control().get("/status").await.ok()["requests_in_flight"] != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok());
    }

    /// The engine has nothing, and nothing comes to it any more.
    async fn is_quiet(&self) {
        self.until("quiet", |load| load == (0, 0)).await;
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(self.load().await, (0, 0));
        }
    }
}

fn request(extra: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [user("Tell me a story.")], "max_tokens": 24, "ignore_eos": true, "temperature": 0.0});
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    body
}

fn endless(stream: bool) -> Value {
    request(json!({"max_tokens": 3000, "stream": stream}))
}

fn path(session: &str) -> String {
    format!("/sessions/{session}/v1/chat/completions")
}

/// Every other one is streamed.
fn turns<'a>(case: &'a Case, ids: &'a [String]) -> impl Future<Output = Vec<Value>> + 'a {
    let turns = ids.iter().enumerate().map(|(number, id)| async move {
        let answer = case.bed.chat(id, endless(number % 2 == 0)).await;
        if answer.text().starts_with("data: ") || answer.text().starts_with(": ") {
            let last = chunks(answer.text()).pop().unwrap();
            return last;
        }
        answer.json()
    });
    join_all(turns)
}

/// Ended by the fence, one way or another.
fn is_ended_by_fence(answer: &Value) -> bool {
    answer["choices"][0]["finish_reason"] == "abort" || answer["error"]["code"] == "rollout_closed"
}

async fn nothing_runs_after_a_fence(case: &Case) {
    let ids = case.sessions(MAX_RUNNING + 4).await;
    let fence = async {
        case.has_in_flight(ids.len()).await;
        case.until("some run and some wait", |(running, waiting)| {
            running > 3 && waiting > 0
        })
        .await;
        case.fence().await
    };
    let (answers, report) = tokio::join!(turns(case, &ids), fence);
    assert_eq!(report["requests"], ids.len(), "{report}");
    assert_eq!(
        (&report["left"], &report["unproven"]),
        (&json!(0), &json!(0)),
        "{report}"
    );
    case.is_quiet().await;
    for answer in answers {
        assert!(is_ended_by_fence(&answer), "{answer}");
    }
    let refused = case.bed.chat(&ids[0], endless(false)).await;
    assert_eq!(refused.status, 410);
    assert_eq!(refused.headers["x-should-retry"], "false");
}

async fn a_fence_in_the_middle_of_arrivals_catches_all_of_them(case: &Case) {
    // Some are not read yet when the fence comes, some are between the engine's parser and its scheduler, some run.
    let ids = case.sessions(40).await;
    let fence = async {
        case.until("the first is there", |load| load != (0, 0))
            .await;
        case.fence().await
    };
    let late = join_all(ids.iter().enumerate().map(|(number, id)| async move {
        tokio::time::sleep(Duration::from_millis(5 * number as u64)).await;
        case.bed.chat(id, endless(number % 2 == 0)).await
    }));
    let (answers, report) = tokio::join!(late, fence);
    assert_eq!(report["left"], 0, "{report}");
    assert_eq!(report["unproven"], 0, "{report}");
    case.is_quiet().await;
    for answer in answers {
        assert!(
            answer.status == 410
                || answer.text().contains("abort")
                || answer.text().contains("rollout_closed"),
            "{}",
            answer.text()
        );
    }
}

async fn clients_that_vanish_free_their_slots(case: &Case) {
    let served = Served::start(&case.bed.router).await;
    let ids = case.sessions(MAX_RUNNING + 3).await;
    let mut clients = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let mut client = TcpStream::connect(served.agents).await.unwrap();
        let body = endless(number % 2 == 0);
        client
            .write_all(raw_post(&path(id), &body).as_bytes())
            .await
            .unwrap();
        clients.push(client);
    }
    case.has_in_flight(ids.len()).await;
    case.until("some run and some wait", |(running, waiting)| {
        running > 3 && waiting > 0
    })
    .await;
    drop(clients);
    case.is_quiet().await;
    for id in &ids {
        let view = case
            .bed
            .control()
            .get(&format!("/sessions/{id}"))
            .await
            .ok();
        assert_eq!(view["records"], json!([]));
    }
    served.cancel.cancel();
}

async fn a_streamed_turn_is_recorded_like_a_whole_one(case: &Case) {
    let mut collected = Vec::new();
    for stream in [true, false] {
        let id = case.bed.session(json!({})).await;
        let answer = case.bed.chat(&id, request(json!({"stream": stream}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = case.bed.engine_requests(&id).await;
        assert_eq!(sent[0]["stream"], stream);
        let sample = case.bed.samples(&id, json!({})).await.samples.remove(0);
        collected.push((
            sample.tokens,
            sample.loss_mask,
            sample.status,
            sample.weight_versions,
        ));
    }
    assert_eq!(collected[0], collected[1]);
}

async fn a_stream_that_ends_by_itself_has_all_its_tokens(case: &Case) {
    for seed in 0..4 {
        let id = case.bed.session(json!({})).await;
        let body = request(
            json!({"stream": true, "max_tokens": 400, "ignore_eos": false, "temperature": 1.0, "seed": seed,
                   "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}),
        );
        let answer = case.bed.chat(&id, body).await;
        assert!(
            answer.text().ends_with("data: [DONE]\n\n"),
            "{}",
            answer.text()
        );
        let sample = case.bed.samples(&id, json!({})).await.samples.remove(0);
        let trained = sample.trained_tokens();
        assert!(trained > 0);
        assert_eq!(sample.rollout_log_probs.unwrap().len(), trained);
    }
}

async fn a_fence_ends_streams_with_what_they_have(case: &Case) {
    let id = case.sessions(1).await.remove(0);
    let mut stream = case.bed.chat_stream(&id, endless(true)).await;
    let mut told = String::new();
    while chunks(&told).len() < 5 {
        told.push_str(&stream.next().await.unwrap());
    }
    let report = case.fence().await;
    assert_eq!(report["engines"][0]["aborted"], 1, "{report}");
    while let Some(piece) = stream.next().await {
        told.push_str(&piece);
    }
    let last = chunks(&told).pop().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "abort", "{last}");
    assert!(told.ends_with("data: [DONE]\n\n"));
    let sample = case.bed.samples(&id, json!({})).await.samples.remove(0);
    assert_eq!(sample.status, SampleStatus::Aborted);
    case.is_quiet().await;
}
