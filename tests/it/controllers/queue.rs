//! The queue: an object waits once, and what changes while it is looked at makes it wait again.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use rollout_operator::api::pool::SGLangPool;
use rollout_operator::controllers::runtime::metrics::Metrics;
use rollout_operator::controllers::runtime::queue::Queue;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn an_object_waits_once() {
    let metrics = Arc::new(Metrics::default());
    let (queue, waiting) = Queue::new("SGLangPool", Arc::clone(&metrics));
    for _ in 0..1000 {
        queue.add("rl", "a");
    }
    queue.add("rl", "b");
    let length = |count: usize| {
        let line = format!(r#"rollout_operator_queue_length{{kind="SGLangPool"}} {count}"#);
        assert!(metrics.text().contains(&line), "{}", metrics.text());
    };
    length(2);
    let stop = CancellationToken::new();
    let mut waiting = pin!(waiting.stream::<SGLangPool>(stop.clone()));
    let first = waiting.next().await.unwrap().unwrap();
    assert_eq!(
        (first.name.as_str(), first.namespace.as_deref()),
        ("a", Some("rl"))
    );
    queue.begin("rl", "a");
    length(1);
    queue.add("rl", "a");
    assert_eq!(waiting.next().await.unwrap().unwrap().name, "b");
    assert_eq!(waiting.next().await.unwrap().unwrap().name, "a");
    queue.add("rl", "c");
    stop.cancel();
    assert!(
        waiting.next().await.is_none(),
        "a stop ends it, whatever waits"
    );
}

/// Its last event was its deletion, or something names it that is made later: nothing is reconciled, and nothing begins.
#[tokio::test]
async fn an_object_that_is_not_there_waits_again_when_it_is() {
    let metrics = Arc::new(Metrics::default());
    let (queue, waiting) = Queue::new("SGLangPool", Arc::clone(&metrics));
    let mut waiting = pin!(waiting.stream::<SGLangPool>(CancellationToken::new()));
    queue.add("rl", "a");
    assert_eq!(waiting.next().await.unwrap().unwrap().name, "a");
    queue.add("rl", "a");
    queue.begin("rl", "a");
    let next = tokio::time::timeout(std::time::Duration::ZERO, waiting.next()).await;
    assert_eq!(next.expect("it waits").unwrap().unwrap().name, "a");
    queue.gone("rl", "a");
    let line = r#"rollout_operator_queue_length{kind="SGLangPool"} 0"#;
    assert!(metrics.text().contains(line), "{}", metrics.text());
}
