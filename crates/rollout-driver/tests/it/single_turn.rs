//! Jobs that generate by `/generate`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rollout_engine::Reason;
use rollout_session::SampleStatus;
use serde_json::json;

use crate::rig::{Job, Pool, SUMS, engine, eventually, slow_engine};

#[tokio::test]
async fn a_job_ends_with_its_target_and_samples_that_verify() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = Job::new(&pool.control_url, &json!({}));
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::TargetReached, "{result:?}");
    let samples = job.samples(0);
    assert_eq!(samples.len(), 4);
    for sample in &samples {
        assert_eq!(sample.status, SampleStatus::Completed);
        assert!(sample.response.contains("boxed"));
        assert_eq!(
            sample.rollout_log_probs.as_ref().unwrap().len(),
            sample.response_length
        );
        assert!(
            sample.tokens.len() > sample.response_length,
            "the prompt's ids are there"
        );
        assert!(sample.reward.is_number());
    }
    let ledger = &job.manifest().steps[0].ledger;
    assert_eq!((ledger.kept, ledger.taken), (2, 2));
    assert_eq!(job.last_word()["result"]["reason"], "TargetReached");
    pool.stop().await;
}

/// A job whose prompts are tokenized by the driver, as the simulated engine does.
fn tokenized(pool: &Pool, spec: &serde_json::Value) -> Job {
    let mut job = Job::new(&pool.control_url, spec);
    job.config["tokenizer"] = json!("builtin");
    job
}

#[tokio::test]
async fn with_a_tokenizer_the_chat_template_is_applied_and_ids_are_sent() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = tokenized(&pool, &json!({"dataset": {"applyChatTemplate": true}}));
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    for sample in job.samples(0) {
        let prompt = sample.prompt.as_str().expect("a rendered text");
        assert!(prompt.contains("<|im_start|>"), "{prompt}");
        assert!(prompt.contains("What is"), "{prompt}");
    }
    pool.stop().await;
}

#[tokio::test]
async fn the_budget_is_cut_to_what_the_context_leaves() {
    let pool = Pool::start(vec![slow_engine(500, 1)]).await;
    let job = tokenized(
        &pool,
        &json!({"maxContextTokens": 60, "sampling": {"maxNewTokens": 200}, "reward": {"type": "None"}}),
    );
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    for sample in job.samples(0) {
        assert_eq!(sample.tokens.len(), 60);
        assert_eq!(sample.status, SampleStatus::Truncated);
    }
    pool.stop().await;
}

#[tokio::test]
async fn prompts_that_are_too_long_are_left_out_and_counted() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let long = "word ".repeat(400);
    let rows = json!([
        {"prompt": long, "label": "1"}, {"prompt": SUMS[0].0, "label": "2"}, {"prompt": SUMS[1].0, "label": "5"},
    ]);
    let job = tokenized(
        &pool,
        &json!({"dataset": {"inline": rows, "maxPromptTokens": 100}}),
    );
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    assert_eq!(
        job.manifest().steps[0].ledger.filtered["prompt_too_long"],
        1
    );
    let said = "1 prompt was left out of a data set of 3 rows: longer than dataset.maxPromptTokens (100 tokens)";
    assert!(result.message.contains(said), "{}", result.message);
    assert_eq!(
        job.run().await.unwrap(),
        result,
        "a later start says the same"
    );
    pool.stop().await;
}

#[tokio::test]
async fn when_all_prompts_are_too_long_the_job_ends_with_the_limits_name() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = tokenized(&pool, &json!({"dataset": {"maxPromptTokens": 2}}));
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::DatasetExhausted);
    assert_eq!(
        result.message,
        "every row of the data set was left out; 6 prompts were left out of a data set of 6 rows: longer than dataset.maxPromptTokens (2 tokens)"
    );
    pool.stop().await;
}

#[tokio::test]
async fn messages_without_a_tokenizer_are_bad_rows_with_advice() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let rows = json!([{"prompt": [{"role": "user", "content": "hi"}], "label": "1"}]);
    let job = Job::new(&pool.control_url, &json!({"dataset": {"inline": rows}}));
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    assert!(
        result.message.contains("applyChatTemplate"),
        "{}",
        result.message
    );
    pool.stop().await;
}

#[tokio::test]
async fn groups_whose_rewards_do_not_differ_are_filtered_with_the_reason() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"batchSize": 4, "samplesPerPrompt": 2, "filter": {"type": "NonzeroRewardStd"}}}),
    );
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    for pair in job.samples(0).chunks(2) {
        assert_ne!(pair[0].reward, pair[1].reward);
    }
    let filtered = &job.manifest().steps[0].ledger.filtered;
    assert!(
        filtered
            .keys()
            .all(|reason| reason.starts_with("zero_std_")),
        "{filtered:?}"
    );
    assert!(!filtered.is_empty());
    pool.stop().await;
}

#[tokio::test]
async fn requests_per_engine_times_engines_bounds_what_is_in_flight() {
    let engines = vec![slow_engine(200, 1), slow_engine(200, 1)];
    let pool = Pool::start(engines).await;
    let job = Job::new(
        &pool.control_url,
        &json!({
            "rollout": {"batchSize": 6, "overSampling": {"batchSize": 8}, "concurrency": {"requestsPerEngine": 2}},
            "reward": {"type": "None"},
        }),
    );
    // An answer takes a second: a fifth request at once would be seen.
    let most = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let run = async {
        let result = job.run().await.unwrap();
        assert!(result.success, "{}", job.last_word());
        over.store(true, Ordering::Relaxed);
    };
    let watch = eventually("the job is over", || {
        most.fetch_max(pool.in_flight(), Ordering::Relaxed);
        over.load(Ordering::Relaxed)
    });
    tokio::join!(run, watch);
    assert_eq!(
        most.into_inner(),
        4,
        "2 at each of 2 engines, and all of them used"
    );
    pool.stop().await;
}
