//! What a later start makes of the output, and what the manifest says of the job's end.

use rollout_driver::output::verify;
use rollout_driver::run::Driver;
use rollout_engine::Reason;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::rig::{Job, Pool, SUMS, engine, eventually, slow_engine};

/// A finished job of this many steps.
async fn finished(pool: &Pool, steps: u32) -> Job {
    let job = Job::new(&pool.control_url, &json!({"rollout": {"steps": steps}}));
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    job
}

#[tokio::test]
async fn a_lost_file_of_the_last_step_is_written_again_from_the_ledger() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = finished(&pool, 2).await;
    let file = job.output().join("samples-1.jsonl");
    let before = std::fs::read(&file).unwrap();
    let changed = String::from_utf8_lossy(&before).replacen("boxed", "BOXED", 1);
    for harm in ["deleted", "truncated", "changed"] {
        match harm {
            "deleted" => std::fs::remove_file(&file).unwrap(),
            "truncated" => std::fs::write(&file, &before[..before.len() / 2]).unwrap(),
            _ => std::fs::write(&file, &changed).unwrap(),
        }
        let again = job.run().await.unwrap();
        assert!(again.success, "{harm}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "{harm}");
    }
    assert_eq!(job.samples(1).len(), 4, "it verifies");
    pool.stop().await;
}

#[tokio::test]
async fn a_lost_file_that_nobody_has_ends_the_job_with_its_name_and_what_to_do() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = finished(&pool, 2).await;
    let first = job.output().join("samples-0.jsonl");
    let content = std::fs::read(&first).unwrap();
    std::fs::remove_file(&first).unwrap();
    let missing = job.run().await.unwrap_err().to_string();
    let path = first.display().to_string();
    assert!(
        missing.contains(&path) && missing.contains("it is missing"),
        "{missing}"
    );
    assert!(missing.contains("put the file back"), "{missing}");
    let word = job.last_word();
    assert_eq!(word["result"]["reason"], "OutputUnusable");
    assert!(word.to_string().contains("samples-0.jsonl"), "{word}");
    // As it says.
    std::fs::write(&first, &content).unwrap();
    assert!(job.run().await.unwrap().success);

    std::fs::write(&first, &content[..9]).unwrap();
    let last = job.output().join("samples-1.jsonl");
    std::fs::remove_file(&last).unwrap();
    std::fs::remove_dir_all(job.ledger()).unwrap();
    let cut = job.run().await.unwrap_err().to_string();
    assert!(cut.contains("it has 9 bytes, expected"), "{cut}");
    pool.stop().await;
}

#[tokio::test]
async fn every_decided_end_is_in_the_manifest_and_verifies() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let slow = Pool::start(vec![slow_engine(4000, 400)]).await;
    let short = json!({"badRows": 0, "consecutiveGroupFailures": 1});
    let cases = [
        (&pool, Reason::TargetReached, json!({})),
        (
            &slow,
            Reason::DeadlineExceeded,
            json!({"activeDeadlineSeconds": 1, "sampling": {"maxNewTokens": 4000}}),
        ),
        (
            &pool,
            Reason::ErrorBudgetExceeded,
            json!({"dataset": {"inline": [{"prompt": "no label"}]}, "rollout": {"errorBudget": short}}),
        ),
        (
            &pool,
            Reason::DatasetExhausted,
            // A thousand groups until it gives up: many at once, so that a busy machine is in time.
            json!({"rollout": {"batchSize": 64, "samplesPerPrompt": 1, "filter": {"type": "NonzeroRewardStd"}}}),
        ),
    ];
    for (pool, reason, spec) in cases {
        let job = Job::new(&pool.control_url, &spec);
        let result = job.run().await.unwrap();
        assert_eq!(result.reason, reason, "{}", job.last_word());
        let entry = job.manifest().result.expect("a result");
        assert_eq!(entry.result, result);
        assert_eq!(entry.ledger.taken, entry.ledger.ended());
        let report = verify(&job.output(), 8).unwrap();
        assert!(report.is_sound() && report.notes.is_empty(), "{report:?}");
        assert_eq!(report.result.expect("a result").result.reason, reason);
    }
    pool.stop().await;
    slow.stop().await;
}

#[tokio::test]
async fn an_interrupted_job_does_not_claim_a_result() {
    let pool = Pool::start(vec![slow_engine(4000, 400)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"sampling": {"maxNewTokens": 4000}, "teardown": {"drainSeconds": 0}}),
    );
    let stop = CancellationToken::new();
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        eventually("samples are in flight", || {
            board.json()["progress"]["sessions"]["active"] == 4
        })
        .await;
        stop.cancel();
    });
    assert_eq!(result.unwrap().reason, Reason::Interrupted);
    let report = verify(&job.output(), 8).unwrap();
    assert!(!report.is_sound());
    let problem = report.problems[0].to_string();
    assert!(problem.contains("no step is finished"), "{problem}");
    assert!(problem.contains("started again goes on"), "{problem}");
    assert_eq!(report.job.expect("whose it is").name, "sums");
    pool.stop().await;
}

#[tokio::test]
async fn a_decided_job_without_its_ledger_stays_decided() {
    let pool = Pool::start(vec![slow_engine(4000, 400)]).await;
    let mut job = Job::new(
        &pool.control_url,
        &json!({"activeDeadlineSeconds": 1, "rollout": {"steps": 3}, "sampling": {"maxNewTokens": 4000}}),
    );
    let first = job.run().await.unwrap();
    assert_eq!(first.reason, Reason::DeadlineExceeded);
    std::fs::remove_dir_all(job.ledger()).unwrap();
    job.config["job"]["attempt"] = json!(2);
    assert_eq!(job.run().await.unwrap(), first);
    assert_eq!(job.manifest().steps.len(), 1, "no further step was begun");
    pool.stop().await;
}

#[tokio::test]
async fn an_output_below_a_file_is_refused_with_the_files_name() {
    let mut job = Job::new("http://127.0.0.1:9", &json!({}));
    let file = job.directory.path().join("notes.txt");
    std::fs::write(&file, "mine").unwrap();
    job.config["output_dir"] = json!(file.join("out"));
    let error = job.run().await.unwrap_err().to_string();
    let expected = format!("{} is a file; choose another place", file.display());
    assert!(error.contains(&expected), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert_eq!(job.last_word()["result"]["reason"], "OutputUnusable");
}
