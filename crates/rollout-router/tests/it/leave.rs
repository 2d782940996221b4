//! A router that leaves: what it has ends by itself, and clients go elsewhere with their next connection.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Bed, eventually, in_time};

const QUIET: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_router_that_leaves_ends_what_it_has_and_sends_clients_elsewhere() {
    let bed = Bed::start().await;
    let status = bed.control().get("/status").await;
    assert_eq!(status.headers.get("connection"), None);
    bed.engines[0].pause().await;
    let control = bed.control();
    let body = json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2}});
    let mut asked = JoinSet::new();
    asked.spawn(async move { control.post("/generate", body).await });
    let simulator = &bed.engines[0].simulator;
    let gates = || simulator.state().paths.contains_key("/generate");
    eventually("the engine has the request", gates).await;
    let router = bed.router.clone();
    let mut leaving = JoinSet::new();
    leaving.spawn(async move { router.leave(QUIET, Duration::from_hours(1)).await });
    let marked = async {
        while bed
            .control()
            .get("/status")
            .await
            .headers
            .get("connection")
            .is_none()
        {
            tokio::task::yield_now().await;
        }
    };
    in_time(marked).await;
    // New work is taken as well: others may still send clients here.
    let created = bed.control().post("/sessions", json!({})).await;
    assert_eq!(created.status, 200);
    assert_eq!(created.headers["connection"], "close");
    assert!(leaving.try_join_next().is_none());
    bed.engines[0].resume().await;
    in_time(asked.join_next()).await.unwrap().unwrap().ok();
    in_time(leaving.join_next()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn leaving_is_bounded_and_takes_as_long_as_others_may_send_clients() {
    let bed = Bed::start().await;
    let begun = tokio::time::Instant::now();
    bed.router
        .leave(Duration::from_secs(5), Duration::from_mins(1))
        .await;
    let quiet = begun.elapsed();
    assert!((5..7).contains(&quiet.as_secs()), "{quiet:?}");
    let begun = tokio::time::Instant::now();
    bed.router
        .leave(Duration::from_secs(5), Duration::from_secs(1))
        .await;
    assert!(begun.elapsed() < Duration::from_secs(2));
}
