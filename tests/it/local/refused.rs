//! What is refused before anything starts: nothing is left behind, and the message says what to do.

use axum::{Json, Router, http::StatusCode, routing::get};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    MATH,
    run::{AGENT, Run, tempdir},
};

/// What a start with these arguments says.
async fn refused(manifest: &str, more: &[&str]) -> String {
    let home = tempdir();
    let output = home.path().join("out");
    let ended = Run::start_with(manifest, &output, more).end().await;
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    assert!(!output.exists(), "{}", ended.talk);
    ended.talk
}

#[tokio::test]
async fn a_wrong_manifest() {
    let home = tempdir();
    let manifest = home.path().join("job.yaml");
    let text = std::fs::read_to_string(MATH)
        .unwrap()
        .replace("batchSize: 12", "batchSize: 2");
    std::fs::write(&manifest, text).unwrap();
    let talk = refused(manifest.to_str().unwrap(), &[]).await;
    assert!(talk.contains("spec.rollout.overSampling"), "{talk}");
}

#[tokio::test]
async fn an_interpreter_that_is_none() {
    let home = tempdir();
    let directory = home.path().to_str().unwrap();
    for (python, problem) in [
        ("/no/such/python", "there is no such program"),
        ("no-such-python-on-the-path", "there is no such program"),
        (directory, "it is a directory"),
        (AGENT, "it is not executable"),
        ("/bin/sh", "it is no Python"),
    ] {
        let talk = refused(AGENT, &["--python", python]).await;
        assert!(
            talk.contains(&format!("--python {python}: {problem}")),
            "{talk}"
        );
        assert!(
            talk.contains("name a Python 3.9 or later with --python PATH"),
            "{talk}"
        );
    }
}

#[tokio::test]
async fn an_interpreter_that_is_none_also_where_nothing_needs_one() {
    let talk = refused(MATH, &["--python", "/no/such/python"]).await;
    assert!(talk.contains("there is no such program"), "{talk}");
}

/// Serves until the answer is dropped; its URL.
async fn serve(app: Router) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, server)
}

#[tokio::test]
async fn an_engine_where_nothing_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let talk = refused(AGENT, &["--engine", &url]).await;
    assert!(
        talk.contains(&format!(
            "engine {url}: nothing answers there (Connection refused"
        )),
        "{talk}"
    );
    assert!(talk.contains("check that SGLang runs"), "{talk}");
}

#[tokio::test]
async fn an_engine_that_is_no_engine() {
    let object = || async { Json(json!({"status": "ok"})) };
    let model = || async { Json(json!({"model_path": "m"})) };
    let status = |status: StatusCode| Router::new().fallback(move || async move { status });
    for (app, problem) in [
        (Router::new(), "it is not SGLang (/model_info answered 404)"),
        (
            Router::new().fallback(get(|| async { "<html>" })),
            "it is not SGLang (/model_info did not answer with JSON)",
        ),
        (
            Router::new().fallback(get(object)),
            "it is not SGLang (/model_info answered JSON without model_path)",
        ),
        (
            Router::new().route("/model_info", get(model)),
            "it is not SGLang (/server_info answered 404)",
        ),
        (
            status(StatusCode::UNAUTHORIZED),
            "it asks for an API key (401)",
        ),
        (
            status(StatusCode::SERVICE_UNAVAILABLE),
            "it is not ready (/model_info answered 503",
        ),
    ] {
        let (url, _server) = serve(app).await;
        let talk = refused(AGENT, &["--engine", &url]).await;
        assert!(talk.contains(&format!("engine {url}: {problem}")), "{talk}");
    }
}

#[tokio::test]
async fn a_tokenizer_that_is_none() {
    let home = tempdir();
    let directory = home.path().to_str().unwrap();
    let talk = refused(MATH, &["--tokenizer", directory]).await;
    assert!(
        talk.contains(&format!(
            "--tokenizer {directory}: there is no tokenizer.json in it"
        )),
        "{talk}"
    );
}
