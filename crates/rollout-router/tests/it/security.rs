//! Who may reach what.

use serde_json::json;

use crate::support::{Bed, Client, Recorder, engine_config, user};

#[tokio::test]
async fn the_agents_port_has_no_control() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let agent = bed.agent();
    for (method, path) in [
        ("POST", "/sessions".to_owned()),
        ("GET", format!("/sessions/{id}")),
        ("DELETE", format!("/sessions/{id}")),
        ("POST", format!("/sessions/{id}/samples")),
        ("POST", format!("/sessions/{id}/outcome")),
        ("POST", "/generate".to_owned()),
        ("POST", "/v1/chat/completions".to_owned()),
        ("POST", "/fence".to_owned()),
        ("DELETE", "/fence".to_owned()),
        ("POST", "/agent-abort".to_owned()),
        ("POST", "/pod-ended".to_owned()),
        ("POST", "/abort_request".to_owned()),
        ("GET", "/outcomes?job=a".to_owned()),
        ("GET", "/demand?job=a".to_owned()),
        ("GET", "/status".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("GET", "/ready".to_owned()),
        ("GET", "/workers".to_owned()),
        ("POST", "/workers".to_owned()),
        ("GET", "/workers/x".to_owned()),
        ("DELETE", "/workers/x".to_owned()),
        ("GET", "/list_workers".to_owned()),
        ("POST", "/add_worker?url=http://10.0.0.1:1".to_owned()),
        ("POST", "/remove_worker?url=http://10.0.0.1:1".to_owned()),
        ("POST", "/pause_generation".to_owned()),
        ("POST", "/flush_cache".to_owned()),
        ("POST", "/update_weights_from_disk".to_owned()),
        ("POST", "/release_memory_occupation".to_owned()),
    ] {
        let answer = agent.send(method, &path, "{}").await;
        assert_eq!(answer.status, 403, "{method} {path}");
    }
    agent.get("/health").await.ok();
    assert_eq!(
        bed.control().get(&format!("/sessions/{id}")).await.status,
        200
    );
}

#[tokio::test]
async fn engine_control_is_not_reachable_through_a_session() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    for rest in [
        "flush_cache",
        "abort_request",
        "pause_generation",
        "continue_generation",
        "update_weights_from_disk",
        "server_info",
        "v1/loads",
        "metrics",
        "../flush_cache",
        "%66lush_cache",
        "v1/../flush_cache",
        "/flush_cache",
        "FLUSH_CACHE",
        "v1/chat/completions/",
        "V1/models",
        "simulator/state",
        ".",
    ] {
        for client in [bed.agent(), bed.control()] {
            for method in ["GET", "POST"] {
                let path = format!("/sessions/{id}/{rest}");
                let answer = client.send(method, &path, "{}").await;
                assert_eq!(answer.status, 403, "{method} {path}");
            }
        }
    }
    let paths = bed.engines[0].simulator.state().paths;
    assert!(paths.keys().all(|path| path == "/ping"), "{paths:?}");
}

#[tokio::test]
async fn a_base_url_with_the_session_twice_is_told_so() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    for path in [
        format!("/sessions/{id}/sessions/{id}/v1/chat/completions"),
        format!("/sessions/{id}/v1/sessions/{id}/v1/chat/completions"),
    ] {
        let answer = bed
            .agent()
            .post(&path, json!({"messages": [user("hi")]}))
            .await;
        assert_eq!(answer.status, 404);
        assert!(
            answer.error().contains("contains /sessions/<id> twice"),
            "{}",
            answer.error()
        );
        assert_eq!(answer.headers["x-should-retry"], "false");
    }
}

#[tokio::test]
async fn unknown_sessions_and_routes_are_404() {
    let bed = Bed::start().await;
    let unknown = "0".repeat(32);
    let answer = bed.chat(&unknown, json!({"messages": [user("hi")]})).await;
    assert_eq!(answer.status, 404);
    assert_eq!(
        answer.error(),
        format!("session not found: session_id={unknown}")
    );
    for id in ["abc", &"A".repeat(32), &"0".repeat(33)] {
        assert_eq!(
            bed.chat(id, json!({"messages": []})).await.status,
            404,
            "{id}"
        );
    }
    assert_eq!(
        bed.control()
            .delete(&format!("/sessions/{unknown}"))
            .await
            .status,
        404
    );
    assert_eq!(bed.control().get("/nothing").await.status, 404);
    assert_eq!(bed.control().get("/sessions").await.status, 405);
    assert_eq!(bed.control().get("/generate").await.status, 405);
}

#[tokio::test]
async fn the_control_port_wants_its_token_when_it_has_one() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.control_token = Some("s3cret".to_owned());
    })
    .await;
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(bed.control().get(path).await.status, 200, "{path}");
    }
    assert_eq!(bed.control().post("/sessions", json!({})).await.status, 401);
    for wrong in [
        "Bearer s3cre",
        "Bearer s3crets",
        "Basic s3cret",
        "Bearer",
        "Bearer ",
    ] {
        let client = bed.control().header("authorization", wrong);
        assert_eq!(
            client.post("/sessions", json!({})).await.status,
            401,
            "{wrong}"
        );
    }
    let client = bed.control().header("authorization", "bearer s3cret");
    client.post("/sessions", json!({})).await.ok();
}

#[tokio::test]
async fn a_session_token_counts_only_where_it_is_required() {
    let chat = json!({"messages": [user("hi")], "max_tokens": 2});
    let open = Bed::start().await;
    let id = open.session(json!({})).await;
    let path = format!("/sessions/{id}/v1/chat/completions");
    let foreign = open.agent().header("authorization", "Bearer EMPTY");
    foreign.post(&path, chat.clone()).await.ok();

    let strict = Bed::with(vec![engine_config()], |config| {
        config.require_session_token = true;
    })
    .await;
    let id = strict.session(json!({"job": "swe", "assign": true})).await;
    let claim = json!({"claim_id": "0123456789abcdef0123456789abcdef", "wait_seconds": 1});
    let claimed = strict
        .launcher("0", 1)
        .post("/agent/claim", claim)
        .await
        .ok();
    let path = format!("/sessions/{id}/v1/chat/completions");
    assert_eq!(strict.agent().post(&path, chat.clone()).await.status, 401);
    let foreign = strict.agent().header("authorization", "Bearer EMPTY");
    assert_eq!(foreign.post(&path, chat.clone()).await.status, 401);
    let token = format!("Bearer {}", claimed["token"].as_str().unwrap());
    strict
        .agent()
        .header("authorization", &token)
        .post(&path, chat)
        .await
        .ok();
}

#[tokio::test]
async fn headers_of_clients_and_engines_stay_where_they_belong() {
    let engine = Recorder::start("{}").await;
    let bed = Bed::with(Vec::new(), |config| {
        config.engines = vec![engine.url.clone()];
    })
    .await;
    let id = bed.session(json!({})).await;
    let headers = [
        ("authorization", "Bearer EMPTY"),
        ("cookie", "a=b"),
        ("x-smg-routing-key", "forged"),
        ("x-smg-target-worker", "forged"),
        ("x-override-rid", "forged"),
        ("traceparent", "00-1-2-01"),
    ];
    let with_headers = |client: Client| {
        let headers = headers.iter();
        headers
            .into_iter()
            .fold(client, |client, (name, value)| client.header(name, value))
    };
    let path = format!("/sessions/{id}/v1/chat/completions");
    let body = json!({"messages": [user("hi")]});
    let answer = with_headers(bed.agent()).post(&path, body).await;
    assert_eq!(answer.status, 502);
    let (sent, _) = engine.last();
    let keys: Vec<_> = sent.get_all("x-smg-routing-key").iter().collect();
    assert_eq!(keys, [&id]);
    assert_eq!(sent["traceparent"], "00-1-2-01");
    for gone in [
        "authorization",
        "cookie",
        "x-smg-target-worker",
        "x-override-rid",
    ] {
        assert!(!sent.contains_key(gone), "{gone}");
    }
    let answer = with_headers(bed.control())
        .post("/generate", json!({"text": "a"}))
        .await;
    for gone in [
        "server",
        "date",
        "content-length",
        "transfer-encoding",
        "connection",
    ] {
        assert!(!answer.headers.contains_key(gone), "{gone}");
    }
    assert_eq!(answer.headers["x-engine"], "1");
    let (sent, _) = engine.last();
    assert_eq!(sent["x-smg-routing-key"], "forged");
    assert!(!sent.contains_key("authorization"));
}
