//! Files from engines that serve them, or do not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, Uri};
use axum::routing::get;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use super::*;

/// What an engine answers to one question for a file.
#[derive(Debug, Clone)]
enum Answer {
    File(&'static str),
    /// With the digest of something else.
    Damaged(&'static str),
    Status(u16),
    /// The head, and then nothing.
    Hangs,
}

/// A sidecar: what it answers to each question for a file, one after the other; the last answer stays.
#[derive(Debug, Default)]
struct Sidecar {
    answers: Mutex<BTreeMap<&'static str, Vec<Answer>>>,
    asked: Mutex<Vec<String>>,
}

struct Serving {
    sidecar: Arc<Sidecar>,
    url: String,
    ledger: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

async fn serve(answers: &[(&'static str, &[Answer])]) -> Serving {
    let sidecar = Arc::<Sidecar>::default();
    for (file, these) in answers {
        sidecar.answers.lock().insert(file, these.to_vec());
    }
    let routes = Router::new()
        .route("/tokenizer/{file}", get(answer))
        .with_state(Arc::clone(&sidecar));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://localhost:{}/tokenizer",
        listener.local_addr().unwrap().port()
    );
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    Serving {
        sidecar,
        url,
        ledger: tempfile::tempdir().unwrap(),
        _tasks: tasks,
    }
}

async fn answer(State(sidecar): State<Arc<Sidecar>>, uri: Uri) -> Response<Body> {
    let file = uri.path().trim_start_matches("/tokenizer/").to_owned();
    sidecar.asked.lock().push(file.clone());
    let next = {
        let mut answers = sidecar.answers.lock();
        match answers.get_mut(file.as_str()) {
            None => Answer::Status(404),
            Some(these) if these.len() > 1 => these.remove(0),
            Some(these) => these[0].clone(),
        }
    };
    let with = |text: &'static str, digest: String| {
        let mut headers = HeaderMap::new();
        let tag = format!("\"{DIGEST}{digest}\"");
        headers.insert("etag", tag.parse().unwrap());
        let mut response = Response::new(Body::from(text));
        *response.headers_mut() = headers;
        response
    };
    match next {
        Answer::File(text) => with(text, hex(Sha256::new().chain_update(text))),
        Answer::Damaged(text) => with(text, hex(Sha256::new())),
        Answer::Status(status) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status.try_into().unwrap();
            response
        }
        Answer::Hangs => Response::new(Body::from_stream(futures_util::stream::pending::<
            io::Result<Vec<u8>>,
        >())),
    }
}

impl Serving {
    fn config(&self, more: &Value) -> DriverConfig {
        let mut config = json!({
            "version": 1,
            "job": {"name": "j", "namespace": "n", "uid": "u", "attempt": 1},
            "spec": {
                "rollout": {"batchSize": 1, "samplesPerPrompt": 1},
                "generate": {"singleTurn": {}},
                "dataset": {"inline": [{"prompt": "x"}]},
            },
            "ledger_dir": self.ledger.path(),
            "output_dir": self.ledger.path(),
            "router_url": "http://127.0.0.1:1",
            "tokenizer_url": self.url,
            "timeouts": {"tokenizer_seconds": 20.0},
        });
        for (field, value) in more.as_object().unwrap() {
            config[field] = value.clone();
        }
        DriverConfig::parse(&config.to_string()).unwrap()
    }

    async fn resolved(&self, more: &Value) -> Result<Option<TokenizerSource>, String> {
        let never = CancellationToken::new();
        let resolved = resolve(self.config(more), &never).await;
        resolved
            .map(|config| config.tokenizer)
            .map_err(|error| error.to_string())
    }

    fn asked(&self) -> usize {
        self.sidecar.asked.lock().len()
    }
}

fn fetched(source: Option<TokenizerSource>) -> (PathBuf, String) {
    match source {
        Some(TokenizerSource::Fetched { directory, digest }) => (directory, digest),
        other => panic!("{other:?}"),
    }
}

fn read(directory: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(directory.join(name)).ok()
}

#[tokio::test]
async fn all_files_come_and_a_later_start_uses_them() {
    let serving = serve(&[
        ("tokenizer.json", &[Answer::File("{}")]),
        ("chat_template.jinja", &[Answer::File("template")]),
    ])
    .await;
    let (directory, digest) = fetched(serving.resolved(&json!({})).await.unwrap());
    assert_eq!(read(&directory, "tokenizer.json").as_deref(), Some("{}"));
    assert_eq!(
        read(&directory, "chat_template.jinja").as_deref(),
        Some("template")
    );
    assert_eq!(read(&directory, "generation_config.json"), None);
    assert_eq!(digest.len(), 64);
    let asked = serving.asked();
    assert_eq!(asked, FILES.len());
    assert_eq!(
        fetched(serving.resolved(&json!({})).await.unwrap()),
        (directory, digest.clone())
    );
    assert_eq!(serving.asked(), asked);
    // Another attempt looks again: the pool's model may be another one.
    serving
        .sidecar
        .answers
        .lock()
        .insert("tokenizer.json", vec![Answer::File("{\"a\": 1}")]);
    let next = json!({"job": {"name": "j", "namespace": "n", "uid": "u", "attempt": 2}});
    let (_, other) = fetched(serving.resolved(&next).await.unwrap());
    assert_ne!(other, digest);
}

#[tokio::test]
async fn what_does_not_work_is_tried_again_from_the_beginning() {
    for wrong in [
        Answer::Status(503),
        Answer::Status(500),
        Answer::Damaged("template"),
    ] {
        let serving = serve(&[
            ("tokenizer.json", &[Answer::File("{}")]),
            (
                "chat_template.jinja",
                &[wrong.clone(), Answer::File("template")],
            ),
        ])
        .await;
        let (directory, _) = fetched(serving.resolved(&json!({})).await.unwrap());
        assert_eq!(
            read(&directory, "chat_template.jinja").as_deref(),
            Some("template"),
            "{wrong:?}"
        );
        let first = serving
            .sidecar
            .asked
            .lock()
            .iter()
            .filter(|file| *file == FILES[0])
            .count();
        assert_eq!(first, 2, "{wrong:?}");
    }
}

#[tokio::test]
async fn engines_without_a_tokenizer_tokenize_themselves_unless_a_template_is_wanted() {
    let serving = serve(&[]).await;
    assert_eq!(serving.resolved(&json!({})).await.unwrap(), None);
    let mut spec = json!({
        "rollout": {"batchSize": 1, "samplesPerPrompt": 1},
        "generate": {"singleTurn": {}},
        "dataset": {"inline": [{"prompt": "x"}], "applyChatTemplate": true},
    });
    let refused = serving.resolved(&json!({"spec": spec})).await.unwrap_err();
    assert!(
        refused.contains("the engines have none to give"),
        "{refused}"
    );
    // Also where that was found out before.
    spec["dataset"]["applyChatTemplate"] = json!(false);
    assert_eq!(
        serving.resolved(&json!({"spec": spec})).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_deadline_ends_the_tries_with_the_last_error() {
    let short = json!({"timeouts": {"tokenizer_seconds": 0.5}});
    let serving = serve(&[("tokenizer.json", &[Answer::Damaged("{}")])]).await;
    let refused = serving.resolved(&short).await.unwrap_err();
    assert!(
        refused.contains("within 0.5 s") && refused.contains("is not what its engine says"),
        "{refused}"
    );
    let serving = serve(&[("tokenizer.json", &[Answer::Hangs])]).await;
    let refused = serving.resolved(&short).await.unwrap_err();
    assert!(refused.contains("did not send everything"), "{refused}");
    assert_eq!(read(&serving.ledger.path().join("tokenizer"), MARK), None);
}

/// That is nobody's failure: the time that files may take begins when an engine is there.
#[tokio::test]
async fn engines_that_are_away_are_waited_for() {
    let serving = serve(&[("tokenizer.json", &[Answer::File("{}")])]).await;
    // Bound, and not listening: nobody else gets the port, and connections are refused.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let away = json!({
        "tokenizer_url": format!("http://localhost:{}/tokenizer", address.port()),
        "timeouts": {"tokenizer_seconds": 3.0},
    });
    let mut resolving = std::pin::pin!(serving.resolved(&away));
    let waits = tokio::time::timeout(Duration::from_secs(4), &mut resolving).await;
    assert!(waits.is_err(), "{waits:?}");
    let listener = socket.listen(16).unwrap();
    let routes = Router::new()
        .route("/tokenizer/{file}", get(answer))
        .with_state(Arc::clone(&serving.sidecar));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    fetched(resolving.await.unwrap());
}

#[tokio::test]
async fn a_stop_waits_for_no_file() {
    let serving = serve(&[("tokenizer.json", &[Answer::Hangs])]).await;
    let stop = CancellationToken::new();
    stop.cancel();
    let config = resolve(serving.config(&json!({})), &stop).await.unwrap();
    assert_eq!(
        config.tokenizer,
        Some(TokenizerSource::Engines(serving.url.clone()))
    );
}
