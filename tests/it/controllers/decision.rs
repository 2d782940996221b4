//! Whether an object is sent.

use std::time::{Duration, Instant};

use rollout_operator::controllers::runtime::decision::{Applied, Decision, Reason, decide};
use serde_json::{Value, json};

const MANAGER: &str = "rollout-operator/pool";

fn wish(value: i32) -> Value {
    json!({"spec": {"a": value}})
}

/// A live object of which `spec.a` is ours.
fn there(value: &Value, version: u64) -> Value {
    json!({
        "metadata": {
            "resourceVersion": version.to_string(),
            "managedFields": [{"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}}}}],
        },
        "spec": {"a": value},
    })
}

fn applied(desired: &Value, answer: &Value, now: Instant) -> Applied {
    Applied::new(desired, answer, MANAGER, &Reason::Missing, None, now)
}

#[test]
fn a_value_that_the_server_writes_in_its_own_way_is_sent_once() {
    let now = Instant::now();
    let desired = wish(1);
    // The server makes "one" of it, and we do not know that rule.
    let answer = there(&json!("one"), 7);
    let first = decide(&desired, Some(&answer), None, MANAGER, now);
    assert!(
        matches!(first, Decision::Send(Reason::Changed(_))),
        "{first:?}"
    );
    let last = applied(&desired, &answer, now);
    let later = now + Duration::from_hours(1);
    for live in [&answer, &there(&json!("one"), 9)] {
        assert_eq!(
            decide(&desired, Some(live), Some(&last), MANAGER, later),
            Decision::Settled
        );
    }
    let drifted = decide(
        &desired,
        Some(&there(&json!("two"), 9)),
        Some(&last),
        MANAGER,
        later,
    );
    assert!(
        matches!(drifted, Decision::Send(Reason::Drifted(_))),
        "{drifted:?}"
    );
}

#[test]
fn a_cache_that_is_behind_our_own_write_decides_nothing() {
    let now = Instant::now();
    let last = applied(&wish(2), &there(&json!(2), 10), now);
    let behind = there(&json!(1), 9);
    assert_eq!(
        decide(&wish(2), Some(&behind), Some(&last), MANAGER, now),
        Decision::Settled
    );
    // Another wish does not wait for it.
    let other = decide(&wish(3), Some(&behind), Some(&last), MANAGER, now);
    assert!(
        matches!(other, Decision::Send(Reason::Changed(_))),
        "{other:?}"
    );
}

#[test]
fn repairs_of_one_object_come_ever_later() {
    let start = Instant::now();
    let desired = wish(1);
    let wrong = there(&json!(5), 100);
    let mut last = applied(&desired, &there(&json!(1), 1), start);
    let mut now = start;
    let mut gaps = Vec::new();
    for _ in 0..10 {
        let Decision::Send(reason) = decide(&desired, Some(&wrong), Some(&last), MANAGER, now)
        else {
            panic!("no repair");
        };
        assert!(matches!(reason, Reason::Drifted(_)));
        last = Applied::new(
            &desired,
            &there(&json!(1), 1),
            MANAGER,
            &reason,
            Some(&last),
            now,
        );
        let Decision::Later(wait) = decide(&desired, Some(&wrong), Some(&last), MANAGER, now)
        else {
            panic!("a second repair at once");
        };
        gaps.push(wait.as_secs());
        now += wait;
    }
    assert_eq!(gaps, [10, 20, 40, 80, 160, 320, 600, 600, 600, 600]);
    // An edit of ours starts anew.
    let edited = decide(&wish(2), Some(&wrong), Some(&last), MANAGER, now);
    let Decision::Send(reason) = edited else {
        panic!("{edited:?}");
    };
    let last = Applied::new(
        &wish(2),
        &there(&json!(2), 200),
        MANAGER,
        &reason,
        Some(&last),
        now,
    );
    let drifted = decide(
        &wish(2),
        Some(&there(&json!(5), 201)),
        Some(&last),
        MANAGER,
        now,
    );
    assert!(
        matches!(drifted, Decision::Send(Reason::Drifted(_))),
        "{drifted:?}"
    );
}
