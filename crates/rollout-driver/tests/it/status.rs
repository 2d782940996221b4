//! The status server and the last word.

use reqwest::{Client, StatusCode, header};
use rollout_driver::run::Driver;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::rig::{Job, Pool, eventually, slow_engine};

#[tokio::test]
async fn the_status_has_an_etag_and_is_not_sent_twice() {
    let pool = Pool::start(vec![slow_engine(2000, 20)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"sampling": {"maxNewTokens": 2000}, "teardown": {"drainSeconds": 1}}),
    );
    let driver = Driver::start(job.config()).await.unwrap();
    let (url, board) = (driver.status_url(), driver.board().clone());
    let stop = CancellationToken::new();
    let client = Client::builder().no_proxy().build().unwrap();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        eventually("samples are in flight", || {
            board.json()["progress"]["sessions"]["active"] == 4
        })
        .await;
        let first = client.get(&url).send().await.unwrap();
        let tag = first.headers()[header::ETAG].clone();
        let body: Value = first.json().await.unwrap();
        assert_eq!(body["phase"], "Running");
        assert_eq!(body["attempt"], 1);
        assert_eq!(body["progress"]["groups"]["target"], 2);
        assert_eq!(body["result"], Value::Null);
        let again = client
            .get(&url)
            .header(header::IF_NONE_MATCH, tag)
            .send()
            .await
            .unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let metrics = client.get(url.replace("/status", "/metrics")).send();
        let metrics = metrics.await.unwrap().error_for_status().unwrap();
        let form = metrics.headers()[header::CONTENT_TYPE].clone();
        assert!(
            form.to_str()
                .unwrap()
                .starts_with("application/openmetrics-text")
        );
        let text = metrics.text().await.unwrap();
        for line in [
            "rollout_samples_in_flight 4",
            "rollout_takes_open 2",
            "rollout_queue_duration_seconds_count 4",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        stop.cancel();
    });
    result.unwrap();
    assert_eq!(board.json()["phase"], "Done");
    pool.stop().await;
}

#[tokio::test]
async fn the_last_word_stays_below_its_limit_and_keeps_the_result() {
    // No router: the error names what was tried, with its causes.
    let mut job = Job::new("http://127.0.0.1:9", &json!({}));
    job.config["timeouts"]["router_seconds"] = json!(0.1);
    job.config["router_url"] = json!(format!("http://127.0.0.1:9/{}", "x".repeat(5000)));
    job.run().await.unwrap_err();
    let word = job.last_word();
    assert_eq!(word["version"], 1);
    assert_eq!(word["result"]["reason"], "crashed");
}
