//! `kill -9` and signals: what a later start finds.

use rollout_driver::output::verify;
use rollout_driver::run::Driver;
use rollout_engine::Reason;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::rig::{Job, Pool, SOON, SUMS, engine, engine_with, eventually, rows, slow_engine};

/// Runs a driver until its board shows `until`, then drops it where it is.
async fn killed(job: &Job, until: impl Fn(&serde_json::Value) -> bool) {
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let run = driver.run(CancellationToken::new());
    tokio::select! {
        _ = run => {}
        () = eventually("the moment of the kill", || until(&board.json())) => {}
    }
}

#[tokio::test]
async fn killed_again_and_again_the_job_still_ends_and_sums_up() {
    let settings = json!({"timeScale": 20, "maxRunningRequests": 4});
    let pool = Pool::start(vec![engine_with(&SUMS, &settings)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({
            "rollout": {
                "batchSize": 5, "samplesPerPrompt": 2, "filter": {"type": "NonzeroRewardStd"},
                "overSampling": {"batchSize": 8}, "partial": {"enabled": true},
            },
        }),
    );
    for kept in 0..5u64 {
        killed(&job, |view| {
            view["progress"]["groups"]["kept"].as_u64() >= Some(kept)
                && view["progress"]["sessions"]["active"].as_u64() > Some(0)
        })
        .await;
    }
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let samples = job.samples(0);
    assert_eq!(samples.len(), 10);
    let ledger = &job.manifest().steps[0].ledger;
    assert_eq!(ledger.taken, ledger.ended());
    assert_eq!(ledger.kept, 5);
    assert!(ledger.recycled.contains_key("restart"), "{ledger:?}");
    pool.stop().await;
}

#[tokio::test]
async fn a_decided_job_stays_decided() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = Job::new(&pool.control_url, &json!({}));
    let first = job.run().await.unwrap();
    let before = std::fs::read(job.output().join("samples-0.jsonl")).unwrap();
    let again = job.run().await.unwrap();
    assert_eq!(first, again);
    assert_eq!(
        std::fs::read(job.output().join("samples-0.jsonl")).unwrap(),
        before
    );
    assert_eq!(job.last_word()["progress"]["groups"]["kept"], 2);
    pool.stop().await;
}

#[tokio::test]
async fn an_interrupted_job_tears_down_and_a_later_start_continues() {
    let pool = Pool::start(vec![slow_engine(400, 4)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"sampling": {"maxNewTokens": 400}, "reward": {"type": "None"}}),
    );
    let stop = CancellationToken::new();
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        eventually("samples are in flight", || {
            board.json()["progress"]["sessions"]["active"].as_u64() > Some(0)
        })
        .await;
        eventually("the engine works", || {
            !pool.simulators[0].state().paths.is_empty()
        })
        .await;
        stop.cancel();
    });
    assert_eq!(result.unwrap().reason, Reason::Interrupted);
    let word = job.last_word();
    assert_eq!(word["result"]["reason"], "interrupted");
    assert_eq!(word["progress"]["groups"]["recycled"], 2, "{word}");
    let result = job.run().await.unwrap();
    assert!(result.success);
    assert_eq!(job.samples(0).len(), 4);
    pool.stop().await;
}

#[tokio::test]
async fn an_attempt_without_the_ledger_rebuilds_from_the_output() {
    let settings = json!({"timeScale": 20, "maxRunningRequests": 2});
    let pool = Pool::start(vec![engine_with(&SUMS, &settings)]).await;
    let mut job = Job::new(&pool.control_url, &json!({"rollout": {"batchSize": 4}}));
    let parts = job.output().join(".rollout/parts/0");
    let kept = || std::fs::read_dir(&parts).map_or(0, Iterator::count);
    killed(&job, |_| kept() >= 1).await;
    // Another node: the ledger is gone, the output is not.
    std::fs::remove_dir_all(job.ledger()).unwrap();
    job.config["job"]["attempt"] = json!(2);
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    assert_eq!(job.samples(0).len(), 8);
    let ledger = &job.manifest().steps[0].ledger;
    assert_eq!((ledger.taken, ledger.kept), (ledger.ended(), 4));
    pool.stop().await;
}

#[tokio::test]
async fn finished_steps_count_also_without_the_ledger_that_saw_them() {
    let settings = json!({"timeScale": 20, "maxRunningRequests": 2});
    let pool = Pool::start(vec![engine_with(&SUMS, &settings)]).await;
    let mut job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"steps": 2, "batchSize": 2}}),
    );
    let first = job.output().join("samples-0.jsonl");
    killed(&job, |_| first.exists()).await;
    std::fs::remove_dir_all(job.ledger()).unwrap();
    job.config["job"]["attempt"] = json!(2);
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let report = verify(&job.output(), 8).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let groups = job.last_word()["progress"]["groups"].clone();
    assert_eq!((&groups["kept"], &groups["target"]), (&json!(4), &json!(4)));

    // All of it was done, and nobody heard of it.
    let manifest = job.manifest();
    std::fs::remove_dir_all(job.ledger()).unwrap();
    job.config["job"]["attempt"] = json!(3);
    assert_eq!(job.run().await.unwrap(), result);
    assert_eq!(job.last_word()["progress"]["groups"], groups);
    assert_eq!(job.manifest().result, manifest.result);
    // The ledger that was made of it says the same.
    assert_eq!(job.run().await.unwrap(), result);
    assert_eq!(job.last_word()["progress"]["groups"], groups);
    pool.stop().await;
}

#[tokio::test]
async fn partial_rollout_resumes_in_the_next_step_where_it_was_cut() {
    let pool = Pool::start(vec![slow_engine(300, 3)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({
            "rollout": {
                "steps": 2, "batchSize": 1, "samplesPerPrompt": 1, "overSampling": {"batchSize": 2},
                "partial": {"enabled": true, "maskOffPolicy": true},
                "concurrency": {"requestsPerEngine": 2},
            },
            "sampling": {"maxNewTokens": 300},
            "reward": {"type": "None"},
        }),
    );
    // The second request begins later, so that it is cut when the first one is through.
    pool.simulators[0].add_fault(sglang_simulator::Fault {
        after: 1,
        seconds: 1.0,
        ..sglang_simulator::Fault::new("/generate", sglang_simulator::FaultKind::Stall).times(1)
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let resumed = job.samples(1).remove(0);
    assert_eq!(resumed.metadata["start_rollout_id"], 0);
    assert_eq!(resumed.weight_versions.len(), 2, "two engine calls");
    let mask = resumed.loss_mask.as_ref().expect("old tokens are masked");
    let old = mask.iter().take_while(|m| **m == 0).count();
    assert!(old > 0 && old < mask.len(), "{old} of {}", mask.len());
    assert!(mask[old..].iter().all(|m| *m == 1));
    assert_eq!(
        resumed.response_length, 300,
        "the budget counts what was there"
    );
    pool.stop().await;
}

#[tokio::test]
async fn a_router_that_restarts_in_place_is_waited_for() {
    let mut pool = Pool::start(vec![slow_engine(400, 4)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"sampling": {"maxNewTokens": 400}, "reward": {"type": "None"}}),
    );
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let (result, ()) = tokio::join!(driver.run(CancellationToken::new()), async {
        eventually("samples are in flight", || {
            board.json()["progress"]["sessions"]["active"].as_u64() > Some(0)
        })
        .await;
        eventually("the engine works on all of them", || {
            let paths = pool.simulators[0].state().paths;
            paths
                .get("/generate")
                .is_some_and(|path| path.requests >= 4)
        })
        .await;
        pool.restart_router().await;
    });
    assert!(result.unwrap().success, "{}", job.last_word());
    assert_eq!(job.samples(0).len(), 4);
    pool.stop().await;
}

#[tokio::test]
async fn what_was_generated_and_not_kept_is_written_when_the_job_asks_for_all() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({
            "rollout": {"batchSize": 2, "samplesPerPrompt": 4, "filter": {"type": "NonzeroRewardStd"}, "overSampling": {"batchSize": 6}},
            "output": {"includeAll": true},
        }),
    );
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let entry = &job.manifest().steps[0];
    let extra = entry.extra.as_ref().expect("an extra file");
    assert!(!rows(&job.output().join(&extra.file)).is_empty());
    pool.stop().await;
}

/// Runs a job of one engine until its samples are in flight, does `harm`, tells it to stop, and answers its last word.
async fn stopped_after(
    mut pool: Pool,
    job: Job,
    harm: impl FnOnce(&mut Pool),
) -> serde_json::Value {
    let stop = CancellationToken::new();
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let run = tokio::time::timeout(SOON, driver.run(stop.clone()));
    let engine = pool.simulators[0].clone();
    let (result, ()) = tokio::join!(run, async {
        eventually("four requests are at the engine", || {
            let state = engine.state();
            state
                .paths
                .get("/generate")
                .is_some_and(|path| path.active == 4)
        })
        .await;
        harm(&mut pool);
        stop.cancel();
    });
    let result = result.unwrap_or_else(|_| panic!("the ladder takes too long: {}", board.json()));
    assert_eq!(result.unwrap().reason, Reason::Interrupted);
    pool.stop().await;
    job.last_word()
}

fn patient(url: &str) -> Job {
    let mut job = Job::new(
        url,
        &json!({"sampling": {"maxNewTokens": 4000}, "teardown": {"drainSeconds": 600}}),
    );
    job.config["timeouts"]["router_seconds"] = json!(60.0);
    job
}

#[tokio::test]
async fn an_engine_that_ends_no_request_is_waited_for_once_over_the_whole_ladder() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let stall = sglang_simulator::FaultKind::Stall;
    pool.simulators[0].add_fault(sglang_simulator::Fault::new("/generate", stall));
    let job = patient(&pool.control_url);
    let word = stopped_after(pool, job, |_| {}).await;
    assert_eq!(word["teardown"]["unproven"], 4, "{word}");
    assert_eq!(word["teardown"]["abortedRequests"], 0, "{word}");
    assert_eq!(word["progress"]["groups"]["recycled"], 2, "{word}");
}

#[tokio::test]
async fn without_a_router_the_ladder_names_the_cause_at_every_rung_and_ends_soon() {
    let pool = Pool::start(vec![slow_engine(4000, 40)]).await;
    let job = patient(&pool.control_url);
    let word = stopped_after(pool, job, Pool::kill_router).await;
    let troubles = word["teardown"]["troubles"].to_string();
    for rung in ["Fence", "Abort", "Prove"] {
        let said = format!("\"{rung}: the router is gone: ");
        assert!(troubles.contains(&said), "{rung}: {word}");
    }
    assert!(troubles.contains("refused"), "{word}");
    assert_eq!(word["progress"]["groups"]["recycled"], 2, "{word}");
}

#[tokio::test]
async fn a_stop_before_admission_is_open_is_an_interruption() {
    let mut pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = patient(&pool.control_url);
    let stop = CancellationToken::new();
    let driver = Driver::start(job.config()).await.unwrap();
    pool.kill_router();
    stop.cancel();
    let result = tokio::time::timeout(SOON, driver.run(stop)).await.unwrap();
    assert_eq!(result.unwrap().reason, Reason::Interrupted);
    pool.stop().await;
}
