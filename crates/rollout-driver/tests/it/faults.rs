//! What breaks, and what the job makes of it.

use rollout_driver::error::{DriverError, LedgerError};
use rollout_driver::output::Manifest;
use rollout_driver::run::Driver;
use rollout_engine::Reason;
use serde_json::json;
use sglang_simulator::{Fault, FaultKind};
use tokio_util::sync::CancellationToken;

use crate::rig::{Job, Pool, SOON, SUMS, engine, engine_with, eventually, slow_engine};

/// A job on one engine with a fault, which still ends with its target; answers its `recentFailures`.
async fn survives(fault: Fault) -> Vec<String> {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    pool.simulators[0].add_fault(fault);
    let job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"requestTimeoutSeconds": 1}}),
    );
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert!(result.success, "{word}");
    assert_eq!(job.samples(0).len(), 4);
    pool.stop().await;
    let failures = word["recentFailures"].as_array().unwrap();
    failures
        .iter()
        .map(|failure| failure["reason"].as_str().unwrap().to_owned())
        .collect()
}

fn generate(kind: FaultKind) -> Fault {
    Fault::new("/generate", kind)
}

#[tokio::test]
async fn an_engine_that_fails_costs_refills() {
    assert_eq!(
        survives(generate(FaultKind::Status500).times(2)).await,
        ["server_error"]
    );
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_of_a_body_costs_a_refill() {
    let failures = survives(generate(FaultKind::CutBody).times(2)).await;
    assert_eq!(failures.len(), 1);
    let cut = ["bad_gateway", "broken_connection"];
    assert!(cut.contains(&failures[0].as_str()), "{failures:?}");
}

#[tokio::test]
async fn an_engine_that_stalls_costs_a_refill_after_the_deadline() {
    let failures = survives(generate(FaultKind::Stall).times(1)).await;
    assert_eq!(failures, ["timed_out"]);
}

#[tokio::test]
async fn a_reply_without_ids_is_no_sample() {
    assert_eq!(
        survives(generate(FaultKind::MissingIds).times(1)).await,
        ["bad_reply"]
    );
}

#[tokio::test]
async fn a_reply_with_wrong_counts_is_no_sample() {
    assert_eq!(
        survives(generate(FaultKind::WrongCounts).times(1)).await,
        ["bad_reply"]
    );
}

#[tokio::test]
async fn one_of_two_engines_dies_and_the_job_goes_on() {
    let pool = Pool::start(vec![engine(&SUMS), engine(&SUMS)]).await;
    pool.simulators[0].add_fault(Fault {
        after: 2,
        ..generate(FaultKind::Death)
    });
    let job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"batchSize": 6, "concurrency": {"requestsPerEngine": 2}}}),
    );
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    assert!(pool.simulators[0].is_dead());
    assert_eq!(job.samples(0).len(), 12);
    pool.stop().await;
}

#[tokio::test]
async fn when_every_engine_is_dead_the_error_budget_ends_the_job() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    pool.simulators[0].kill();
    let job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"errorBudget": {"consecutiveGroupFailures": 3}}}),
    );
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded, "{word}");
    let said = "no engine served anything 3 times in a row";
    assert!(result.message.starts_with(said), "{word}");
    assert!(result.message.contains("most often unavailable"), "{word}");
    let entry = &job.manifest().steps[0];
    assert!(!entry.complete);
    assert_eq!(entry.ledger.taken, entry.ledger.ended());
    pool.stop().await;
}

#[tokio::test]
async fn engines_that_come_back_cost_no_group() {
    let mut pool = Pool::start(vec![engine(&SUMS)]).await;
    pool.simulators[0].kill();
    let mut job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"batchSize": 6, "errorBudget": {"infraFailures": 0}}}),
    );
    job.config["timeouts"]["refill_seconds"] = json!(0.001);
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(driver.run(CancellationToken::new()));
    eventually("all of them failed many times", || {
        board.json()["recentFailures"][0]["count"].as_u64() >= Some(6 * 2 * 6)
    })
    .await;
    pool.restart_engine(0, engine(&SUMS)).await;
    let result = running.join_next().await.unwrap().unwrap().unwrap();
    assert!(result.success, "{}", job.last_word());
    assert_eq!(job.samples(0).len(), 12);
    let ledger = &job.manifest().steps[0].ledger;
    assert_eq!((ledger.taken, ledger.kept), (6, 6), "{ledger:?}");
    pool.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_engines_that_are_away() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    pool.simulators[0].kill();
    let mut job = Job::new(&pool.control_url, &json!({}));
    // So long that the job would wait beyond the limit of the test.
    job.config["timeouts"]["refill_seconds"] = json!(30);
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let stop = CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(driver.run(stop.clone()));
    eventually("all of them failed", || {
        board.json()["recentFailures"][0]["count"] == 4
    })
    .await;
    stop.cancel();
    let ended = tokio::time::timeout(SOON, running.join_next()).await;
    let result = ended.unwrap().unwrap().unwrap().unwrap();
    assert_eq!(result.reason, Reason::Interrupted);
    pool.stop().await;
}

#[tokio::test]
async fn a_full_queue_costs_nothing_but_time() {
    let small = json!({"timeScale": 200, "maxRunningRequests": 2, "maxQueuedRequests": 1});
    let pool = Pool::start(vec![engine_with(&SUMS, &small)]).await;
    let budget = json!({
        "infraFailures": 0, "consecutiveGroupFailures": 1, "retriesPerGroup": 0, "retriesPerSample": 0,
    });
    let job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"batchSize": 20, "errorBudget": budget}}),
    );
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert!(result.success, "{word}");
    assert_eq!(word["recentFailures"], json!([]), "{word}");
    let ledger = &job.manifest().steps[0].ledger;
    assert_eq!((ledger.taken, ledger.kept), (20, 20), "{ledger:?}");
    let state = pool.simulators[0].state();
    assert!(state.rejected > 0, "the queue was full: {state:?}");
    pool.stop().await;
}

#[tokio::test]
async fn a_queue_that_stays_full_is_an_end_after_the_deadline_of_a_request() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    pool.simulators[0].add_fault(generate(FaultKind::Status503));
    let budget = json!({"consecutiveGroupFailures": 2});
    let job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"requestTimeoutSeconds": 1, "errorBudget": budget}}),
    );
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded, "{word}");
    let message = word["recentFailures"][0]["message"].as_str().unwrap();
    assert!(
        message.ends_with("503: The request queue is full."),
        "{word}"
    );
    pool.stop().await;
}

#[tokio::test]
async fn a_request_that_the_engine_refuses_is_not_tried_again() {
    let small = json!({"server": {"contextLength": 16}});
    let pool = Pool::start(vec![engine_with(&SUMS, &small)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"errorBudget": {"consecutiveGroupFailures": 2}}}),
    );
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    let word = job.last_word();
    assert_eq!(word["recentFailures"][0]["reason"], "engine_refused");
    let failed = &job.manifest().steps[0].ledger.failed;
    assert!(failed["engine_refused"] >= 2, "{failed:?}");
    pool.stop().await;
}

#[tokio::test]
async fn a_router_that_never_answers_is_an_error_with_its_address() {
    let job = Job::new("http://127.0.0.1:9", &json!({}));
    let mut job = job;
    job.config["timeouts"]["router_seconds"] = json!(0.3);
    let error = job.run().await.unwrap_err();
    assert!(matches!(error, DriverError::Router { .. }), "{error:?}");
    assert!(error.to_string().contains("http://127.0.0.1:9"));
    assert_eq!(job.last_word()["result"]["reason"], "crashed");
}

#[tokio::test]
async fn directories_of_another_job_are_refused() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(&pool.control_url, &json!({}));
    job.run().await.unwrap();
    job.config["job"]["uid"] = json!("uid-2");
    let output = job.run().await.unwrap_err();
    assert!(
        output.to_string().contains("is the output of job"),
        "{output}"
    );
    assert_eq!(job.last_word()["result"]["reason"], "OutputUnusable");
    job.config["output_dir"] = json!(job.directory.path().join("elsewhere"));
    let ledger = job.run().await.unwrap_err();
    assert!(
        matches!(ledger, DriverError::Ledger(LedgerError::OtherJob { .. })),
        "{ledger:?}"
    );
    assert_eq!(job.last_word()["result"]["reason"], "LedgerUnusable");
    pool.stop().await;
}

#[tokio::test]
async fn a_data_set_that_is_not_on_its_volume_is_told_by_claim_and_file() {
    // Nothing is asked for before there are rows.
    let mut job = Job::new("http://127.0.0.1:1", &json!({}));
    job.config["spec"]["dataset"] =
        json!({"persistentVolumeClaim": {"claimName": "problems", "path": "math/train.jsonl"}});
    job.config["dataset_path"] = json!("/nowhere/train.jsonl");
    job.run().await.unwrap_err();
    let word = job.last_word();
    assert_eq!(word["result"]["reason"], "DatasetUnusable");
    assert_eq!(
        word["result"]["message"],
        "spec.dataset.persistentVolumeClaim: math/train.jsonl on the claim problems: cannot read the data set /nowhere/train.jsonl: No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn another_data_set_is_refused_because_the_cursor_would_point_elsewhere() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(&pool.control_url, &json!({}));
    job.run().await.unwrap();
    job.config["spec"]["dataset"]["inline"] = json!([{"prompt": "What is 1 + 2?", "label": "3"}]);
    let error = job.run().await.unwrap_err();
    assert!(
        matches!(error, DriverError::Ledger(LedgerError::OtherDataset { .. })),
        "{error:?}"
    );
    assert_eq!(job.last_word()["result"]["reason"], "LedgerUnusable");
    pool.stop().await;
}

#[tokio::test]
async fn bad_rows_are_named_counted_and_bounded() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"batchSize": 3, "errorBudget": {"badRows": 2}}}),
    );
    let file = job.directory.path().join("rows.jsonl");
    let good = |n: usize| json!({"prompt": SUMS[n].0, "label": SUMS[n].1}).to_string();
    let broken = "{\"prompt\": \"What is";
    let list = json!({"prompt": "What is 1 + 1?", "label": ["2"]}).to_string();
    let rows = [good(0), broken.to_owned(), good(1), list.clone(), good(2)];
    std::fs::write(&file, rows.join("\n")).unwrap();
    job.config["dataset_path"] = json!(file);
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert!(result.success, "{word}");
    assert_eq!(job.manifest().steps[0].ledger.failed["bad_row"], 2);
    let message = word["recentFailures"][0]["message"].as_str().unwrap();
    let column = list.find('[').unwrap() + 1;
    let place = format!("rows.jsonl:4:{column}: `label` is a list");
    assert!(message.contains(&place), "{message}");

    let mut strict = Job::new(&pool.control_url, &json!({"rollout": {"batchSize": 3}}));
    strict.config["dataset_path"] = json!(file);
    let result = strict.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    pool.stop().await;
}

#[tokio::test]
async fn a_prompt_that_cannot_be_rendered_is_named_where_it_starts() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(&pool.control_url, &json!({}));
    let file = job.directory.path().join("rows.jsonl");
    let row = r#"{"label": "2", "prompt": [{"role": "user", "content": "What is 1 + 1?"}]}"#;
    std::fs::write(&file, row).unwrap();
    job.config["dataset_path"] = json!(file);
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    let word = job.last_word();
    let message = word["recentFailures"][0]["message"].as_str().unwrap();
    let column = row.find('[').unwrap() + 1;
    let place = format!("rows.jsonl:1:{column}: the prompt is a list of messages");
    assert!(message.contains(&place), "{message}");
    pool.stop().await;
}

#[tokio::test]
async fn a_later_attempt_takes_the_ledger_away_from_an_older_one() {
    let pool = Pool::start(vec![slow_engine(2000, 20)]).await;
    let mut job = Job::new(
        &pool.control_url,
        &json!({"sampling": {"maxNewTokens": 2000}}),
    );
    let older = Driver::start(job.config()).await.unwrap();
    let board = older.board().clone();
    let stop = CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(older.run(stop.clone()));
    eventually("samples are in flight", || {
        board.json()["progress"]["sessions"]["active"].as_u64() > Some(0)
    })
    .await;
    job.config["job"]["attempt"] = json!(2);
    let newer = Driver::start(job.config()).await.unwrap();
    stop.cancel();
    let error = running.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            DriverError::Ledger(LedgerError::Superseded {
                attempt: 1,
                newer: 2
            })
        ),
        "{error:?}"
    );
    drop(newer);
    pool.stop().await;
}

#[tokio::test]
async fn an_older_attempt_cannot_open_the_ledger_of_a_newer_one() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(&pool.control_url, &json!({}));
    job.config["job"]["attempt"] = json!(3);
    job.run().await.unwrap();
    job.config["job"]["attempt"] = json!(2);
    let error = job.run().await.unwrap_err();
    assert!(error.to_string().contains("attempt"), "{error}");
    assert!(Manifest::read(&job.output()).unwrap().is_some());
    pool.stop().await;
}

#[tokio::test]
async fn a_job_that_generates_nothing_ends_at_its_first_deadline() {
    let pool = Pool::start(vec![slow_engine(2000, 60)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"preRunningDeadlineSeconds": 1, "sampling": {"maxNewTokens": 2000}}),
    );
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::PreRunningDeadlineExceeded);
    assert!(!result.success);
    assert!(!job.manifest().steps[0].complete);
    pool.stop().await;
}

#[tokio::test]
async fn a_job_that_generates_passes_its_first_deadline() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"preRunningDeadlineSeconds": 2, "activeDeadlineSeconds": 4, "rollout": {"steps": 100_000}}),
    );
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::DeadlineExceeded);
    assert!(job.manifest().steps.len() > 1);
    pool.stop().await;
}

#[tokio::test]
async fn the_deadline_of_the_job_ends_it_with_what_it_has() {
    let pool = Pool::start(vec![slow_engine(2000, 60)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"activeDeadlineSeconds": 1, "sampling": {"maxNewTokens": 2000}}),
    );
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::DeadlineExceeded);
    let word = job.last_word();
    let aborted = &word["teardown"]["abortedRequests"];
    assert_eq!(*aborted, 4, "it did not wait for the engine: {word}");
    let entry = &job.manifest().steps[0];
    assert_eq!((entry.complete, entry.ledger.kept), (false, 0));
    pool.stop().await;
}

/// An engine that answers everything but probes with one status.
async fn refusing(status: u16, tasks: &mut tokio::task::JoinSet<()>) -> String {
    let status = axum::http::StatusCode::from_u16(status).unwrap();
    let routes = axum::Router::new()
        .route("/ping", axum::routing::get(|| async {}))
        .fallback(move || async move { (status, r#"{"error":"Unauthorized"}"#) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    url
}

#[tokio::test]
async fn engines_that_refuse_the_key_are_no_fault_of_the_rows() {
    for status in [401, 403] {
        let mut tasks = tokio::task::JoinSet::new();
        let url = refusing(status, &mut tasks).await;
        let pool = Pool::start_with(Vec::new(), |router| router.engines = vec![url]).await;
        let budget = json!({"rollout": {"errorBudget": {"infraFailures": 3}}});
        let job = Job::new(&pool.control_url, &budget);
        let result = job.run().await.unwrap();
        let word = job.last_word();
        assert_eq!(result.reason, Reason::ErrorBudgetExceeded, "{word}");
        assert!(result.message.contains(&status.to_string()), "{word}");
        assert_eq!(word["recentFailures"][0]["reason"], "unauthorized");
        pool.stop().await;
    }
}
