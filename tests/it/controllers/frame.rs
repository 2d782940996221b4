//! The frame around a reconcile: panics, reconciles without an end, backoff.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use rollout_operator::controllers::Error;
use rollout_operator::controllers::runtime::metrics::Metrics;
use rollout_operator::controllers::runtime::reconcile::{Frame, Next, Subject};

const LIMIT: Duration = Duration::from_millis(50);

fn subject(generation: i64) -> Subject {
    Subject {
        name: "rl/a".to_owned(),
        uid: "uid".to_owned(),
        generation,
    }
}

fn frame() -> (Frame, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let frame = Frame::with_limit("SGLangPool", Arc::clone(&metrics), LIMIT);
    (frame, metrics)
}

fn shows(metrics: &Metrics, line: &str) {
    let text = metrics.text();
    assert!(
        text.lines().any(|shown| shown == line),
        "{line} is not in\n{text}"
    );
}

fn leaving() -> Error {
    Error::Leaving {
        object: "Service rl/a".to_owned(),
    }
}

#[tokio::test]
async fn a_panic_is_an_error_of_one_object() {
    let (frame, metrics) = frame();
    let number = std::hint::black_box(1);
    let action = frame
        .run(&subject(1), async {
            assert_eq!(number, 2, "no such luck");
            Ok(Next::OnChange)
        })
        .await;
    assert_ne!(action, Action::await_change());
    shows(
        &metrics,
        r#"rollout_operator_reconcile_errors_total{kind="SGLangPool",class="internal"} 1"#,
    );
    shows(
        &metrics,
        r#"rollout_operator_reconciles_running{kind="SGLangPool"} 0"#,
    );
}

#[tokio::test]
async fn a_reconcile_without_an_end_is_ended() {
    let (frame, metrics) = frame();
    let endless = std::future::pending::<Result<Next, Error>>();
    let action = frame.run(&subject(1), endless).await;
    assert_ne!(action, Action::await_change());
    shows(
        &metrics,
        r#"rollout_operator_reconcile_errors_total{kind="SGLangPool",class="internal"} 1"#,
    );
    shows(
        &metrics,
        r#"rollout_operator_objects_failing{kind="SGLangPool"} 1"#,
    );
}

#[tokio::test]
async fn an_event_does_not_run_what_is_backing_off_and_an_edit_does() {
    let (frame, metrics) = frame();
    frame.run(&subject(1), async { Err(leaving()) }).await;
    let mut runs = 0;
    for _ in 0..5 {
        let action = frame
            .run(&subject(1), async {
                runs += 1;
                Ok(Next::OnChange)
            })
            .await;
        assert_ne!(action, Action::await_change(), "it is never tried again");
    }
    assert_eq!(runs, 0);
    frame
        .run(&subject(2), async {
            runs += 1;
            Ok(Next::OnChange)
        })
        .await;
    assert_eq!(runs, 1);
    shows(
        &metrics,
        r#"rollout_operator_objects_failing{kind="SGLangPool"} 0"#,
    );
    shows(
        &metrics,
        r#"rollout_operator_reconciles_total{kind="SGLangPool",result="ok"} 1"#,
    );
    shows(
        &metrics,
        r#"rollout_operator_reconcile_errors_total{kind="SGLangPool",class="conflict"} 1"#,
    );
}
