//! Data sets behind a URL: jobs that fetch them, and what is told when they cannot.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use rollout_driver::error::DriverError;
use rollout_driver::output::OutputError;
use rollout_driver::run::Driver;
use rollout_engine::Reason;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::rig::{Job, Pool, SUMS, engine};

/// Who serves a data set to those who know the word.
#[derive(Debug, Default)]
struct Store {
    rows: Mutex<String>,
    asked: Mutex<u32>,
}

struct Serving {
    store: Arc<Store>,
    url: String,
    _tasks: JoinSet<()>,
}

async fn serve(rows: &str) -> Serving {
    let store = Arc::<Store>::default();
    rows.clone_into(&mut store.rows.lock());
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
    *store.asked.lock() += 1;
    if headers
        .get("authorization")
        .is_none_or(|it| it != "Bearer word")
    {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    store.rows.lock().clone().into_response()
}

fn sums() -> String {
    let row = |(prompt, label): &(&str, &str)| json!({"prompt": prompt, "label": label});
    SUMS.iter().map(|sum| row(sum).to_string() + "\n").collect()
}

/// A job on the rows of a URL, with credentials.
fn job(control_url: &str, url: &str, spec: &Value) -> Job {
    let mut job = Job::new(control_url, spec);
    job.config["spec"]["dataset"] = json!({"url": url});
    let credentials = job.directory.path().join("credentials");
    std::fs::create_dir(&credentials).unwrap();
    std::fs::write(credentials.join("token"), "word\n").unwrap();
    job.config["dataset_credentials_dir"] = json!(credentials);
    job
}

/// The node is gone with the ledger on it; the output is not.
fn next_attempt(job: &mut Job) {
    std::fs::remove_dir_all(job.ledger()).unwrap();
    job.config["job"]["attempt"] = json!(2);
}

#[tokio::test]
async fn rows_are_fetched_once_and_a_later_start_has_them() {
    let serving = serve(&sums()).await;
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool.control_url, &serving.url, &json!({}));
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::TargetReached, "{result:?}");
    assert_eq!(job.samples(0).len(), 4);
    // All samples of a ledger are of one data set, whatever its server has by now.
    serving.store.rows.lock().clear();
    assert!(job.run().await.unwrap().success);
    assert_eq!(*serving.store.asked.lock(), 1);
    pool.stop().await;
}

#[tokio::test]
async fn rows_that_cannot_be_used_are_named_by_their_url() {
    let rows = sums() + "{\"label\": \"2\"}\n";
    let serving = serve(&rows).await;
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let only_the_last = json!({"rollout": {"batchSize": 1}});
    let mut job = job(&pool.control_url, &serving.url, &only_the_last);
    job.config["spec"]["dataset"]["slice"] = json!("[6:]");
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    let word = job.last_word();
    let message = word["recentFailures"][0]["message"].as_str().unwrap();
    let place = format!("{}:7:1: the key `prompt` is missing", serving.url);
    assert!(message.contains(&place), "{message}");
    pool.stop().await;
}

#[tokio::test]
async fn a_file_that_is_not_given_ends_the_job_and_says_why() {
    let serving = serve(&sums()).await;
    // Nothing is asked for before there are rows.
    let nobody = "http://127.0.0.1:1";
    let mut closed = job(nobody, &serving.url, &json!({}));
    closed.config["dataset_credentials_dir"] = Value::Null;
    closed.run().await.unwrap_err();
    let result = closed.last_word()["result"].clone();
    assert_eq!(result["reason"], "DatasetUnusable");
    assert_eq!(
        result["message"],
        format!(
            "spec.dataset.url: {} asks for credentials (401): put the key token, or username and password, into a Secret and name it in secretRef",
            serving.url
        )
    );
    let elsewhere = serving.url.replace("train", "test");
    let absent = job(nobody, &elsewhere, &json!({}));
    absent.run().await.unwrap_err();
    assert_eq!(
        absent.last_word()["result"]["message"],
        format!("spec.dataset.url: {elsewhere} has no such file (404)")
    );
    serving.store.rows.lock().clear();
    let empty = job(nobody, &serving.url, &json!({}));
    empty.run().await.unwrap_err();
    let result = empty.last_word()["result"].clone();
    assert_eq!(result["reason"], "DatasetUnusable");
    let words = "is empty: it has no rows";
    let said = format!("spec.dataset.url: the data set {} {words}", serving.url);
    assert_eq!(result["message"], said);
}

#[tokio::test]
async fn a_server_that_is_away_is_no_end_of_the_job() {
    let silent = tokio::net::TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/train.jsonl", silent.local_addr().unwrap());
    let mut job = job("http://127.0.0.1:1", &url, &json!({}));
    job.config["timeouts"]["dataset_seconds"] = json!(0.3);
    let error = job.run().await.unwrap_err();
    assert!(matches!(error, DriverError::Download(_)), "{error:?}");
    let result = job.last_word()["result"].clone();
    assert_eq!(result["reason"], "crashed");
    let said = result["message"].as_str().unwrap();
    assert!(said.contains("cannot be reached"), "{said}");
}

#[tokio::test]
async fn samples_of_two_versions_of_a_file_do_not_meet() {
    let serving = serve(&sums()).await;
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut same = job(&pool.control_url, &serving.url, &json!({}));
    same.run().await.unwrap();
    next_attempt(&mut same);
    assert!(same.run().await.unwrap().success);
    assert_eq!(same.samples(0).len(), 4);

    let mut changed = job(&pool.control_url, &serving.url, &json!({}));
    changed.run().await.unwrap();
    serving.store.rows.lock().push('\n');
    next_attempt(&mut changed);
    let error = changed.run().await.unwrap_err();
    let other = matches!(error, DriverError::Output(OutputError::OtherDataset { .. }));
    assert!(other, "{error:?}");
    assert_eq!(changed.last_word()["result"]["reason"], "DatasetUnusable");
    pool.stop().await;
}

#[tokio::test]
async fn a_file_that_changes_before_anything_was_kept_does_no_harm() {
    let serving = serve(&sums()).await;
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = job(&pool.control_url, &serving.url, &json!({}));
    let stop = CancellationToken::new();
    stop.cancel();
    let result = job.run_until(stop).await.unwrap();
    assert_eq!(result.reason, Reason::Interrupted);
    serving.store.rows.lock().push('\n');
    next_attempt(&mut job);
    assert!(job.run().await.unwrap().success);
    pool.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_no_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/train.jsonl", listener.local_addr().unwrap());
    let job = job("http://127.0.0.1:1", &url, &json!({}));
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let asked = async {
        // It has asked by then, and is never answered.
        let _socket = listener.accept().await.unwrap();
        stopped.cancel();
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        started = Driver::start_until(job.config(), &stop) => started.unwrap_err(),
        () = asked => unreachable!(),
    };
    assert!(matches!(error, DriverError::Stopped), "{error:?}");
    assert_eq!(job.last_word()["result"]["reason"], "interrupted");
}
