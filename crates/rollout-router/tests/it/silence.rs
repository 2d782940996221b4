//! An engine that has work and answers nothing is given up; one that is busy or paused is not.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use rollout_router::Config;
use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::support::{Bed, JOB, engine_config, eventually, in_time, slow_engine_config, user};

const CHAT: &str = "/v1/chat/completions";

/// An engine that costs little of the machine that it shares with us.
fn lazy_engine_config() -> sglang_simulator::Config {
    sglang_simulator::Config {
        decode_tokens_per_second: 5,
        ..slow_engine_config()
    }
}

fn endless() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 20_000, "ignore_eos": true})
}

fn endless_generate(extra: Value) -> Value {
    let mut body = json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}});
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    body
}

/// Short times, but long enough for an engine that shares a busy machine with us.
fn impatient(config: &mut Config) {
    config.times.probe = Duration::from_millis(5);
    config.times.control_call = Duration::from_millis(50);
    config.times.engine_silence = Duration::from_secs(2);
}

/// The engine hangs: nothing that it is asked from now on is answered.
fn hang(bed: &Bed, index: usize) {
    let fault = Fault {
        path: None,
        ..Fault::new("/", FaultKind::Stall)
    };
    bed.engines[index].simulator.add_fault(fault);
}

fn busy(bed: &Bed) -> Option<usize> {
    bed.engines
        .iter()
        .position(|engine| engine.simulator.state().running > 0)
}

fn pings(bed: &Bed) -> u64 {
    let paths = bed.engines[0].simulator.state().paths;
    paths.get("/ping").map_or(0, |path| path.requests)
}

async fn until_status(bed: &Bed, what: &str, holds: impl Fn(&Value) -> bool) {
    let wait = async {
        while !holds(&bed.control().get("/status").await.ok()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let happened = tokio::time::timeout(Duration::from_mins(1), wait).await;
    assert!(happened.is_ok(), "{what} did not happen");
}

#[tokio::test]
async fn the_turn_at_a_silent_engine_is_a_504_and_the_next_one_goes_elsewhere() {
    let bed = Bed::with(vec![lazy_engine_config(), lazy_engine_config()], impatient).await;
    let id = bed.session(json!({"job": JOB})).await;
    let hangs = async {
        eventually("the request runs", || busy(&bed).is_some()).await;
        let index = busy(&bed).unwrap();
        hang(&bed, index);
        index
    };
    let (turn, index) = in_time(async { tokio::join!(bed.chat(&id, endless()), hangs) }).await;
    assert_eq!(turn.status, 504, "{:?}", turn.body);
    assert_eq!(turn.json()["error"]["code"], "engine_silent");
    assert!(!turn.headers.contains_key("x-should-retry"));
    let other = &bed.engines[1 - index];
    assert!(!other.simulator.state().paths.contains_key(CHAT));

    let short = json!({"messages": [user("hi")], "max_tokens": 2});
    bed.chat(&id, short).await.ok();
    assert_eq!(other.simulator.state().paths[CHAT].requests, 1);
    let url = bed.engines[index].url.clone();
    let of = |status: &Value| {
        let engines = status["engines"].as_array().unwrap().clone();
        engines.into_iter().find(|engine| engine["url"] == url)
    };
    until_status(&bed, "nothing is counted there", |status| {
        of(status).unwrap()["in_flight"] == 0 && status["requests_in_flight"] == 0
    })
    .await;
    let status = bed.control().get("/status").await.ok();
    assert_eq!(of(&status).unwrap()["healthy"], false);
    bed.engines[index].simulator.clear_faults();
    until_status(&bed, "the engine comes back", |status| {
        of(status).unwrap()["healthy"] == true
    })
    .await;
}

#[tokio::test]
async fn silence_is_told_with_the_outcome() {
    let bed = Bed::with(vec![lazy_engine_config()], impatient).await;
    let id = bed.session(json!({"job": JOB})).await;
    hang(&bed, 0);
    let turn = in_time(bed.chat(&id, endless())).await;
    assert_eq!(turn.status, 504);
    let path = format!("/sessions/{id}/outcome");
    let ended = json!({"outcome": "completed"});
    bed.control().post(&path, ended).await.ok();
    let feed = bed
        .control()
        .get(&format!("/outcomes?job={JOB}"))
        .await
        .ok();
    let fault = &feed["outcomes"][0]["engine_fault"];
    assert_eq!(fault["code"], "engine_silent", "{feed}");
}

#[tokio::test]
async fn work_without_a_session_is_ended_too() {
    let bed = Bed::with(vec![lazy_engine_config()], impatient).await;
    let control = bed.control();
    hang(&bed, 0);
    let several = json!({"sampling_params": {"max_new_tokens": 9, "n": 2}});
    for body in [endless_generate(json!({})), endless_generate(several)] {
        let answer = in_time(control.post("/generate", body)).await;
        assert_eq!(answer.status, 504, "{:?}", answer.body);
        assert_eq!(answer.json()["error"]["code"], "engine_silent");
    }
    until_status(&bed, "nothing is counted", |status| {
        status["requests_in_flight"] == 0 && status["engines"][0]["in_flight"] == 0
    })
    .await;
}

async fn rest_of(mut stream: crate::support::Pieces) -> String {
    in_time(async {
        let mut rest = String::new();
        while let Some(piece) = stream.next().await {
            rest.push_str(&piece);
        }
        rest
    })
    .await
}

#[tokio::test]
async fn streams_from_a_silent_engine_break_off() {
    let mut in_one_piece = lazy_engine_config();
    in_one_piece.server.tool_call_parser = None;
    for engine in [in_one_piece, lazy_engine_config()] {
        let bed = Bed::with(vec![engine], |config| {
            impatient(config);
            config.times.keep_alive = Duration::from_millis(20);
        })
        .await;
        let simulator = &bed.engines[0].simulator;
        let id = bed.session(json!({})).await;
        let mut streamed = endless();
        streamed["stream"] = json!(true);
        let stream = bed.chat_stream(&id, streamed).await;
        eventually("it runs", || simulator.state().running == 1).await;
        // A stream that goes on would be a sign of life.
        bed.engines[0].pause().await;
        hang(&bed, 0);
        let rest = rest_of(stream).await;
        assert!(rest.contains("engine_silent"), "{rest}");
        assert!(!rest.contains("[DONE]"));
        let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
        assert_eq!(view["records"], json!([]));
    }
}

#[tokio::test]
async fn a_stream_that_pauses_in_the_middle_goes_on() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.probe = Duration::from_millis(5);
        config.times.engine_silence = Duration::from_millis(300);
        config.times.idle_body = Duration::from_millis(50);
        config.times.keep_alive = Duration::from_millis(20);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    let mut streamed = endless();
    streamed["stream"] = json!(true);
    streamed["max_tokens"] = json!(50);
    let mut stream = bed.chat_stream(&id, streamed).await;
    eventually("it runs", || simulator.state().running == 1).await;
    bed.engines[0].pause().await;
    // It answers probes, so that nobody takes it for dead, and the client is told that somebody is there.
    let mut comments = 0;
    while comments < 50 {
        let piece = in_time(stream.next()).await.unwrap();
        comments += usize::from(piece.starts_with(':'));
    }
    bed.engines[0].resume().await;
    let rest = rest_of(stream).await;
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!(bed.samples(&id, json!({})).await.samples.len(), 1);
}

/// An engine that begins every answer and ends none; it answers no probe.
async fn stuck_engine() -> String {
    let routes = axum::Router::new()
        .route("/ping", axum::routing::get(std::future::pending::<()>))
        .fallback(|| async {
            let begun = futures_util::stream::once(async { Ok::<_, std::io::Error>("begun") });
            axum::body::Body::from_stream(begun.chain(futures_util::stream::pending()))
        });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    TaskTracker::new().spawn(async move { axum::serve(listener, routes).await });
    url
}

#[tokio::test]
async fn an_answer_that_has_begun_breaks_off() {
    let engine = stuck_engine().await;
    let bed = Bed::with(Vec::new(), |config| {
        config.engines = vec![engine];
        impatient(config);
    })
    .await;
    let id = bed.session(json!({})).await;
    let turn = in_time(bed.chat(&id, endless())).await;
    assert_eq!(turn.json()["error"]["code"], "engine_silent");

    let body = endless_generate(json!({"stream": true})).to_string();
    let request = http::Request::post("/generate")
        .body(Full::new(bytes::Bytes::from(body)))
        .unwrap();
    let response = bed.router.control_service().respond(request).await;
    assert_eq!(response.status(), 200);
    let error = in_time(response.into_body().collect()).await.unwrap_err();
    assert!(error.to_string().contains("it was given up"), "{error}");
    until_status(&bed, "nothing is counted", |status| {
        status["requests_in_flight"] == 0 && status["engines"][0]["in_flight"] == 0
    })
    .await;
}

#[tokio::test]
async fn a_paused_engine_is_not_silent() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.times.probe = Duration::from_millis(2);
        config.times.engine_silence = Duration::from_secs(2);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    let control = |path: &'static str, body: &'static str| async move {
        use tower::ServiceExt;
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body))
            .unwrap();
        let answer = simulator.router().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
    };
    control("/pause_generation", r#"{"mode":"in_place"}"#).await;
    let short = json!({"messages": [user("hi")], "max_tokens": 2});
    let pings = || pings(&bed);
    let later = async {
        eventually("the request waits at the gate", || {
            simulator.state().gated == 1
        })
        .await;
        // More probes than fit into the time of a silence.
        let before = pings();
        eventually("many probes", || pings() > before + 1_100).await;
        control("/continue_generation", "{}").await;
    };
    let (turn, ()) = in_time(async { tokio::join!(bed.chat(&id, short), later) }).await;
    turn.ok();
}

#[tokio::test]
async fn an_engine_that_is_slow_to_answer_is_not_silent() {
    let bed = Bed::with(vec![lazy_engine_config()], |config| {
        impatient(config);
        config.times.engine_silence = Duration::from_secs(50);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    // Each answer takes longer than a probe waits for it before the next one is sent.
    simulator.add_fault(Fault::new("/ping", FaultKind::Stall).seconds(0.2));
    let pings = || pings(&bed);
    let later = async {
        eventually("many probes", || pings() > 20).await;
        simulator.clear_faults();
        bed.control()
            .post("/abort_request", json!({"abort_all": true}))
            .await
            .ok()
    };
    let (turn, _) = in_time(Box::pin(async {
        tokio::join!(bed.chat(&id, endless()), later)
    }))
    .await;
    assert_eq!(turn.ok()["choices"][0]["finish_reason"], "abort");
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["engines"][0]["healthy"], true);
}

#[tokio::test]
async fn a_fence_does_not_wait_for_an_engine_that_does_not_listen() {
    let bed = Bed::with(vec![lazy_engine_config()], |config| {
        config.times.control_call = Duration::from_hours(1);
    })
    .await;
    let of_job = bed.control().header("x-rollout-job", JOB);
    let calls = join_all((0..40).map(|_| of_job.post("/generate", endless_generate(json!({})))));
    let fence = async {
        eventually("the requests run", || {
            bed.engines[0].simulator.state().running == 40
        })
        .await;
        hang(&bed, 0);
        let body = json!({"job": JOB, "deadline_seconds": 0.3});
        in_time(bed.control().post("/fence", body)).await.ok()
    };
    let report = tokio::select! {
        report = fence => report,
        _ = calls => panic!("the engine answered"),
    };
    assert_eq!(report["left"], 40, "{report}");
}

#[tokio::test]
async fn a_fence_ends_when_the_engine_is_given_up() {
    let bed = Bed::with(vec![lazy_engine_config()], |config| {
        impatient(config);
        config.times.engine_silence = Duration::from_secs(5);
    })
    .await;
    let of_job = bed.control().header("x-rollout-job", JOB);
    let calls = join_all((0..20).map(|_| of_job.post("/generate", endless_generate(json!({})))));
    let fence = async {
        eventually("the requests run", || {
            bed.engines[0].simulator.state().running == 20
        })
        .await;
        hang(&bed, 0);
        let body = json!({"job": JOB, "deadline_seconds": 600});
        bed.control().post("/fence", body).await.ok()
    };
    let (answers, report) = in_time(async { tokio::join!(calls, fence) }).await;
    assert_eq!(report["requests"], 20, "{report}");
    assert_eq!(report["unproven"], 20, "{report}");
    assert_eq!(report["left"], 0);
    assert!(answers.iter().all(|answer| answer.status == 504));
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["requests_in_flight"], 0);
}
