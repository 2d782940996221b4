//! Events beside the reconciles.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use rollout_operator::controllers::runtime::events::Note;
use rollout_operator::controllers::runtime::metrics::Metrics;
use rollout_operator::controllers::runtime::telling::{MOST, Word, teller};
use tokio_util::sync::CancellationToken;

fn note(number: usize) -> Note {
    Note {
        warning: false,
        about: "Ready".to_owned(),
        reason: "AsExpected".to_owned(),
        message: number.to_string(),
    }
}

fn job() -> ObjectReference {
    ObjectReference {
        name: Some("job".to_owned()),
        ..ObjectReference::default()
    }
}

#[tokio::test]
async fn what_was_told_before_a_stop_is_written_in_its_order() {
    let (teller, told) = teller(Arc::new(Metrics::default()));
    teller.tell(&job(), &[note(1), note(2)]);
    teller.tell(&job(), &[note(3)]);
    let stop = CancellationToken::new();
    stop.cancel();
    let written = Mutex::new(Vec::new());
    told.write(stop, async |Word { object, note }| {
        written.lock().push((object, note));
    })
    .await;
    let expected: Vec<_> = (1..=3).map(|number| (job(), note(number))).collect();
    assert_eq!(written.into_inner(), expected);
}

/// An API server that does not answer holds up neither a reconcile nor memory.
#[tokio::test]
async fn telling_waits_for_nobody_and_what_is_too_much_is_counted() {
    let metrics = Arc::new(Metrics::default());
    let (teller, told) = teller(Arc::clone(&metrics));
    for number in 0..MOST + 2 {
        teller.tell(&job(), &[note(number)]);
    }
    let dropped = r#"rollout_operator_events_total{outcome="dropped"} 2"#;
    assert!(metrics.text().contains(dropped), "{}", metrics.text());
    let stop = CancellationToken::new();
    stop.cancel();
    let written = Mutex::new(0);
    told.write(stop, async |_| *written.lock() += 1).await;
    assert_eq!(written.into_inner(), MOST);
}
