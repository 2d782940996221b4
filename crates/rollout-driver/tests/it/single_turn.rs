//! Jobs that generate by `/generate`.

use rollout_engine::Reason;
use rollout_session::SampleStatus;
use serde_json::json;

use crate::rig::{Job, Pool, SUMS, engine};

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
