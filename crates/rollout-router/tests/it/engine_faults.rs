//! What engines did to a session is told with its outcome, so that nobody scores an agent for it.

use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};

use crate::support::{Bed, JOB, engine_config, user};

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 3, "ignore_eos": true})
}

async fn session(bed: &Bed) -> String {
    bed.session(json!({"job": JOB})).await
}

/// Ends a session as its launcher would, and answers the outcome.
async fn outcome(bed: &Bed, id: &str) -> Value {
    let body = json!({"outcome": "agent_failed", "error": "exit code 1"});
    let path = format!("/sessions/{id}/outcome");
    bed.control().post(&path, body).await.ok();
    found(bed, id).await
}

async fn found(bed: &Bed, id: &str) -> Value {
    let path = format!("/outcomes?job={JOB}");
    let feed = bed.control().get(&path).await.ok();
    let outcomes = feed["outcomes"].as_array().unwrap();
    let of_session = outcomes.iter().find(|record| record["session_id"] == id);
    of_session.unwrap().clone()
}

#[tokio::test]
async fn a_turn_that_an_engine_failed_is_told_with_the_outcome() {
    for (kind, status, code, text) in [
        (
            FaultKind::WrongCounts,
            502,
            "engine_reply",
            "completion_tokens",
        ),
        (FaultKind::CutBody, 502, "engine_transport", "transport"),
        (FaultKind::Refuse, 502, "engine_transport", "transport"),
        (
            FaultKind::Status500,
            500,
            "engine_error",
            "the engine answered 500: Internal Server Error",
        ),
        (
            FaultKind::Status503,
            503,
            "engine_error",
            "the engine answered 503: The request queue is full.",
        ),
    ] {
        let bed = Bed::start().await;
        let id = session(&bed).await;
        bed.chat(&id, hello()).await.ok();
        // A used connection that is closed at once is asked once more.
        let fault = Fault::new(CHAT, kind).times(2);
        bed.engines[0].simulator.add_fault(fault);
        assert_eq!(bed.chat(&id, hello()).await.status, status);
        let outcome = outcome(&bed, &id).await;
        assert_eq!(outcome["outcome"], "agent_failed");
        assert_eq!(outcome["engine_fault"]["code"], code, "{outcome}");
        let message = outcome["engine_fault"]["message"].as_str().unwrap();
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test]
async fn an_engine_that_is_gone_is_told_with_the_outcome() {
    let bed = Bed::start().await;
    let id = session(&bed).await;
    bed.engines[0].simulator.kill();
    assert_eq!(bed.chat(&id, hello()).await.status, 503);
    let outcome = outcome(&bed, &id).await;
    assert_eq!(outcome["engine_fault"]["code"], "no_engine", "{outcome}");
}

#[tokio::test]
async fn a_recorded_turn_makes_up_for_a_fault() {
    let bed = Bed::start().await;
    let id = session(&bed).await;
    let fault = Fault::new(CHAT, FaultKind::Status500).times(2);
    bed.engines[0].simulator.add_fault(fault);
    for status in [500, 500, 200] {
        assert_eq!(bed.chat(&id, hello()).await.status, status);
    }
    let outcome = outcome(&bed, &id).await;
    assert_eq!(outcome["engine_fault"], Value::Null);
    assert_eq!(outcome["turns"], 1);
}

#[tokio::test]
async fn what_a_client_did_wrong_is_no_fault_of_an_engine() {
    let mut config = engine_config();
    config.server.context_length = 64;
    let bed = Bed::with(vec![config], |_| {}).await;
    let id = session(&bed).await;
    // Refused by the router, then by the engine.
    assert_eq!(bed.chat(&id, json!({"n": 2})).await.status, 400);
    let long = json!({"messages": [user(&"word ".repeat(500))], "max_tokens": 3});
    let refused = bed.chat(&id, long).await;
    assert_eq!(refused.status, 400, "{:?}", refused.body);
    assert_eq!(bed.engines[0].simulator.state().paths[CHAT].requests, 1);
    let outcome = outcome(&bed, &id).await;
    assert_eq!(outcome["engine_fault"], Value::Null);
}

#[tokio::test]
async fn a_turn_that_was_ended_from_outside_is_no_fault_of_an_engine() {
    let bed = Bed::start().await;
    let id = session(&bed).await;
    bed.control().post("/fence", json!({"job": JOB})).await.ok();
    assert_eq!(bed.chat(&id, hello()).await.status, 410);
    let outcome = outcome(&bed, &id).await;
    assert_eq!(outcome["engine_fault"], Value::Null);
}

#[tokio::test]
async fn a_session_that_engines_fail_again_and_again_is_ended() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.limits.engine_faults = 3;
    })
    .await;
    let id = session(&bed).await;
    let simulator = &bed.engines[0].simulator;
    simulator.add_fault(Fault::new(CHAT, FaultKind::Status500).times(2));
    simulator.add_fault(Fault::new(CHAT, FaultKind::WrongCounts).after(1).times(3));
    // Two in a row, a good one, three in a row.
    for status in [500, 500, 200, 502, 502, 502] {
        assert_eq!(bed.chat(&id, hello()).await.status, status);
    }
    let next = bed.chat(&id, hello()).await;
    assert_eq!(next.status, 410);
    assert_eq!(next.json()["error"]["code"], "session_ended");
    assert_eq!(next.headers["x-should-retry"], "false");
    let outcome = found(&bed, &id).await;
    assert_eq!(outcome["outcome"], "infra_failed");
    assert_eq!(outcome["turns"], 1);
    let error = outcome["error"].as_str().unwrap();
    assert!(
        error.starts_with("the engines failed 3 turns in a row: ")
            && error.contains("completion_tokens"),
        "{error}"
    );
    assert_eq!(outcome["engine_fault"]["code"], "engine_reply");
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["requests_in_flight"], 0);
}

/// An engine that answers everything but probes with one status.
async fn refusing(status: u16) -> String {
    let status = http::StatusCode::from_u16(status).unwrap();
    let routes = axum::Router::new()
        .route("/ping", axum::routing::get(|| async {}))
        .fallback(move || async move { (status, r#"{"error":"Unauthorized"}"#) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio_util::task::TaskTracker::new().spawn(async move { axum::serve(listener, routes).await });
    url
}

#[tokio::test]
async fn an_engine_that_refuses_our_key_or_has_no_room_is_not_the_clients_fault() {
    for status in [401, 403, 429] {
        let url = refusing(status).await;
        let bed = Bed::with(Vec::new(), |config| {
            config.engines = vec![url];
            config.engine_key = Some("wrong".to_owned());
            config.limits.engine_faults = 3;
        })
        .await;
        let id = session(&bed).await;
        for _ in 0..2 {
            assert_eq!(bed.chat(&id, hello()).await.status, status);
        }
        let early = bed.session(json!({"job": JOB})).await;
        assert_eq!(bed.chat(&early, hello()).await.status, status);
        let told = outcome(&bed, &early).await;
        assert_eq!(told["engine_fault"]["code"], "engine_error", "{told}");
        let message = told["engine_fault"]["message"].as_str().unwrap();
        let expected = format!("the engine answered {status}: Unauthorized");
        assert_eq!(message, expected);
        // They count like any other: the session is ended as nobody's result.
        assert_eq!(bed.chat(&id, hello()).await.status, status);
        assert_eq!(bed.chat(&id, hello()).await.status, 410);
        assert_eq!(found(&bed, &id).await["outcome"], "infra_failed");
    }
}
