//! The metrics that the router offers.

use serde_json::json;

use crate::support::{Bed, user};

#[tokio::test]
async fn the_names_are_stable() {
    let bed = Bed::start().await;
    let metrics = bed.control().get("/metrics").await;
    let names: Vec<&str> = metrics
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    insta::assert_snapshot!(names.join("\n"));
}

#[tokio::test]
async fn turns_tokens_and_refusals_are_counted() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    bed.chat(
        &id,
        json!({"messages": [user("hi")], "max_tokens": 3, "ignore_eos": true}),
    )
    .await
    .ok();
    bed.chat(&id, json!({})).await;
    let metrics = bed.control().get("/metrics").await;
    for line in [
        "rollout_router_turns_total{status=\"200\"} 1",
        "rollout_router_tokens_total{kind=\"output\"} 3",
        "rollout_router_refused_requests_total{code=\"invalid_request_error\"} 1",
        "rollout_router_sessions{state=\"open\"} 1",
    ] {
        assert!(
            metrics.text().contains(line),
            "{line} in {}",
            metrics.text()
        );
    }
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["sessions"], json!({"open": 1}));
    assert_eq!(status["engines"][0]["healthy"], true);
    assert_eq!(status["engines"][0]["weight_version"], "default");
    assert_eq!(status["engines"][0]["in_flight"], 0);
}
