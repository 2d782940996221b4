//! When what failed is tried again.

use std::time::{Duration, Instant};

use rollout_operator::controllers::Class;
use rollout_operator::controllers::runtime::backoff::{Backoff, Gate, jitter};

#[test]
fn waits_grow_to_a_limit_and_are_forgotten_after_a_success() {
    let backoff = Backoff::default();
    let now = Instant::now();
    let mut before = Duration::ZERO;
    for turn in 0..40 {
        let wait = backoff.failed("a", 1, Class::Transient, now).unwrap();
        assert!(wait <= Duration::from_mins(6), "{wait:?}");
        if turn < 8 {
            assert!(wait > before.mul_f64(1.3), "{wait:?} after {before:?}");
        }
        before = wait;
    }
    assert!(before >= Duration::from_mins(4), "{before:?}");
    assert_eq!(backoff.failing(), 1);
    backoff.forget("a");
    assert_eq!(backoff.failing(), 0);
    assert!(backoff.failed("a", 1, Class::Transient, now).unwrap() < Duration::from_secs(1));
}

#[test]
fn no_event_gets_an_object_past_its_wait_but_an_edit_does() {
    let backoff = Backoff::default();
    let now = Instant::now();
    assert_eq!(backoff.gate("a", 1, now), Gate::Open);
    let wait = backoff.failed("a", 1, Class::Forbidden, now).unwrap();
    assert_eq!(backoff.gate("a", 1, now), Gate::Wait(wait));
    assert_eq!(backoff.gate("a", 1, now + wait), Gate::Open);
    assert_eq!(backoff.gate("a", 2, now), Gate::Open);
    assert_eq!(backoff.gate("b", 1, now), Gate::Open);
    // The edit starts at the first wait again.
    for _ in 0..6 {
        backoff.failed("a", 1, Class::Forbidden, now);
    }
    assert!(backoff.failed("a", 2, Class::Forbidden, now).unwrap() < Duration::from_secs(1));
}

#[test]
fn what_only_an_edit_cures_is_not_tried_by_itself() {
    let backoff = Backoff::default();
    let now = Instant::now();
    assert_eq!(backoff.failed("a", 1, Class::Invalid, now), None);
    // Something else that happens to it is looked at, and not at any rate.
    assert!(matches!(backoff.gate("a", 1, now), Gate::Wait(_)));
    assert_eq!(
        backoff.gate("a", 1, now + Duration::from_secs(1)),
        Gate::Open
    );
}

#[test]
fn waits_differ_between_objects_and_are_the_same_every_time() {
    let plain = Duration::from_secs(100);
    let waits: Vec<_> = (0..200)
        .map(|object| jitter(plain, &format!("uid-{object}"), 1))
        .collect();
    let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!(
        *least >= plain.mul_f64(0.8) && *least < plain.mul_f64(0.85),
        "{least:?}"
    );
    assert!(
        *most <= plain.mul_f64(1.2) && *most > plain.mul_f64(1.15),
        "{most:?}"
    );
    assert_eq!(waits[3], jitter(plain, "uid-3", 1));
}
