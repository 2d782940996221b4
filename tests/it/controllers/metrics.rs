//! Names of metrics, and the pages of the controller's server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use rollout_operator::controllers::runtime::health::Health;
use rollout_operator::controllers::runtime::metrics::Metrics;
use rollout_operator::controllers::runtime::serve::routes;
use tower::ServiceExt;

#[test]
fn names_and_labels_are_a_contract() {
    let metrics = Metrics::default();
    drop(metrics.reconcile_starts("SGLangPool"));
    metrics.reconciled("SGLangPool", None, Duration::from_millis(3));
    metrics.reconciled("SGLangPool", Some("invalid"), Duration::from_millis(3));
    metrics.queued("SGLangPool", 2);
    metrics.failing("SGLangPool", 1);
    metrics.applied("created");
    metrics.called("patch", Some(200), Duration::from_millis(3));
    metrics.called("get", None, Duration::from_millis(3));
    metrics.watch_failed("Pod");
    metrics.event("told");
    metrics.leads(true);
    let mut text: Vec<_> = metrics
        .text()
        .lines()
        .filter(|line| !line.contains("_bucket"))
        .map(str::to_owned)
        .collect();
    // A family lists its members in no order.
    text.sort();
    insta::assert_snapshot!(text.join("\n"));
}

async fn page(health: &Health, path: &str) -> (StatusCode, String) {
    let routes = routes(health.clone(), Arc::new(Metrics::default()));
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = routes.oneshot(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn readiness_names_what_is_missing_and_health_does_not_wait_for_it() {
    let health = Health::default();
    health.missing("lease", "not read yet");
    health.missing("cache of Pod", "pods is forbidden");
    let (status, text) = page(&health, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        text,
        "cache of Pod: pods is forbidden\nlease: not read yet\n"
    );
    assert_eq!(
        page(&health, "/healthz").await,
        (StatusCode::OK, "ok\n".to_owned())
    );
    health.found("lease");
    health.found("cache of Pod");
    assert_eq!(
        page(&health, "/readyz").await,
        (StatusCode::OK, "ready\n".to_owned())
    );
    let (status, text) = page(&health, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.ends_with("# EOF\n"), "{text}");
}
