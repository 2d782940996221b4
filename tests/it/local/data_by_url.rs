//! Data sets behind a URL, encrypted ones too.

use std::{fs, path::Path, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use engine_http::Trust;
use futures_util::{StreamExt, stream};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use rollout_driver::download::{Limits, Wanted, fetch};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    early_ends::failure,
    run::{self, Run, tempdir, until},
};
use crate::authority::{Authority, Server, Valid};

const ROWS: &str =
    "{\"prompt\": \"One?\", \"label\": \"1\"}\n{\"prompt\": \"Two?\", \"label\": \"2\"}\n";
/// After so many bytes a server stands still, once.
const HALF: usize = 40;

#[derive(Debug, Default)]
struct Store {
    /// The byte that each request began with.
    asked: Mutex<Vec<usize>>,
    stands_still: Mutex<bool>,
}

struct Serving {
    store: Arc<Store>,
    url: String,
    _tasks: JoinSet<()>,
}

async fn serve() -> Serving {
    let store = Arc::<Store>::default();
    let routes = Router::new()
        .route("/train.jsonl", get(give))
        .with_state(Arc::clone(&store));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/train.jsonl", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    Serving {
        store,
        url,
        _tasks: tasks,
    }
}

async fn give(State(store): State<Arc<Store>>, headers: HeaderMap) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text("authorization") != Some("Basic bWU6d29yZA==") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let from = text("range").map_or(0, |range| {
        let from = range.trim_start_matches("bytes=").trim_end_matches('-');
        from.parse().unwrap()
    });
    store.asked.lock().push(from);
    let headers = [
        (header::ETAG, "\"one\"".to_owned()),
        (header::CONTENT_LENGTH, (ROWS.len() - from).to_string()),
    ];
    if std::mem::take(&mut *store.stands_still.lock()) {
        let half = Ok::<_, std::io::Error>(Bytes::from_static(&ROWS.as_bytes()[..HALF]));
        let body = stream::iter([half]).chain(stream::pending());
        return (headers, Body::from_stream(body)).into_response();
    }
    if from == 0 {
        return (headers, ROWS).into_response();
    }
    let range = format!("bytes {from}-{}/{}", ROWS.len() - 1, ROWS.len());
    let status = StatusCode::PARTIAL_CONTENT;
    (
        status,
        headers,
        [(header::CONTENT_RANGE, range)],
        &ROWS[from..],
    )
        .into_response()
}

/// A job on the rows of a URL, with credentials in the same files.
fn manifest(home: &Path, url: &str) -> String {
    let job = json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "RolloutJob", "metadata": {"name": "by-url"},
        "spec": {
            "pool": {"engine": {"simulator": {"timeScale": 100, "replies": {"oracle": {"correctPercent": 100}}}}},
            "dataset": {"url": url, "secretRef": {"name": "store"}, "labelKey": "label"},
            "rollout": {"batchSize": 2, "samplesPerPrompt": 2},
            "sampling": {"maxNewTokens": 64},
            "reward": {"type": "Math"},
            "generate": {"singleTurn": {}},
            "output": {"persistentVolumeClaim": {"claimName": "samples"}},
        },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"},
        "stringData": {"username": "me", "password": "word"},
    });
    let path = home.join("manifests");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("job.json"), job.to_string()).unwrap();
    fs::write(path.join("secret.json"), secret.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn rows_are_fetched_before_anything_starts_and_once_for_all_starts() {
    let serving = serve().await;
    let home = tempdir();
    let path = manifest(home.path(), &serving.url);
    let output = home.path().join("out");
    let ended = Run::start(&path, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    let said = format!("fetching {}", serving.url);
    assert!(ended.talk.contains(&said), "{}", ended.talk);
    run::verify(&output).await;
    let samples = run::rows(&output);
    assert_eq!(samples.len(), 4);
    // The simulated engines know the answers.
    let rewards: Vec<_> = samples.iter().map(|sample| &sample["reward"]).collect();
    assert_eq!(rewards, [1, 1, 1, 1]);
    let again = Run::start(&path, &output).end().await;
    assert_eq!(again.code, Some(0), "{}", again.talk);
    assert!(!again.talk.contains(&said), "{}", again.talk);
    assert_eq!(*serving.store.asked.lock(), [0]);
}

#[tokio::test]
async fn a_run_that_was_killed_while_it_fetched_begins_again() {
    let serving = serve().await;
    *serving.store.stands_still.lock() = true;
    let home = tempdir();
    let path = manifest(home.path(), &serving.url);
    let output = home.path().join("out");
    let mut first = Run::start(&path, &output);
    first.wait_for_talk("fetching").await;
    let part = output.join(".rollout/ledger/dataset/part");
    until(
        std::time::Duration::from_mins(1),
        "half of it is here",
        || fs::metadata(&part).is_ok_and(|part| part.len() == HALF as u64),
    )
    .await;
    first.kill(Signal::SIGKILL).await;
    let ended = Run::start(&path, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    run::verify(&output).await;
    // What was not certainly on the disk is asked for again.
    assert_eq!(*serving.store.asked.lock(), [0, 0]);
}

#[tokio::test]
async fn what_cannot_be_fetched_is_told_by_field_and_url() {
    let serving = serve().await;
    let home = tempdir();
    let absent = serving.url.replace("train", "test");
    let path = manifest(home.path(), &absent);
    let said = failure(home.path(), &path, &[]).await;
    assert_eq!(
        said,
        format!("error: spec.dataset.url: {absent} has no such file (404)")
    );
    fs::remove_file(home.path().join("manifests/secret.json")).unwrap();
    let refused = Run::start(&path, &home.path().join("out")).end().await;
    let words = "spec.dataset.secretRef.name: Secret/store is not in these files";
    assert_eq!(refused.code, Some(1), "{}", refused.talk);
    assert!(refused.talk.contains(words), "{}", refused.talk);
    fs::write(
        home.path().join("manifests/secret.json"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"}, "stringData": {"user": "me"}}).to_string(),
    )
    .unwrap();
    let said = failure(home.path(), &path, &[]).await;
    assert_eq!(
        said,
        "error: spec.dataset.secretRef: the credentials of url: a Secret for http and https has the key token, or the keys username and password; this one has: user"
    );
}

#[tokio::test]
async fn an_encrypted_server_is_known_by_its_ca() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let row = "{\"prompt\": \"x\"}\n";
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"prompt\": \"x\"}\n";
    let server = Server::answering(ca.signs(&["127.0.0.1"], Valid::Now), answer).await;
    let url = format!("https://127.0.0.1:{}/train.jsonl", server.port);
    let home = tempdir();
    let of = async |trust: Trust| {
        let wanted = Wanted {
            url: &url,
            credentials: None,
            directory: home.path(),
            trust,
        };
        let limits = Limits::with_patience(std::time::Duration::from_secs(20));
        let fetched = fetch(wanted, limits).await;
        fetched.map_err(|error| error.to_string())
    };
    let stranger = of(Trust::only(&other.pem()).unwrap()).await.unwrap_err();
    let words = format!("{url} has a certificate of a CA that browsers do not trust");
    assert!(stranger.starts_with(&words), "{stranger}");
    let here = of(Trust::only(&ca.pem()).unwrap()).await.unwrap();
    assert_eq!(fs::read_to_string(here.path).unwrap(), row);
}
