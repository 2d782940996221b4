//! Who leads: every step of an election, and random histories in which no two lead at once.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use rollout_operator::controllers::runtime::election::{
    Leadership, Seen, Step, Timing, claimed, evaluate, released,
};

fn timing() -> Timing {
    Timing::of_lease(15)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A lease as the API server has it.
fn stored(mut lease: Lease, version: u64) -> Lease {
    lease.metadata.resource_version = Some(version.to_string());
    lease
}

fn held_by(who: &str, version: u64) -> Lease {
    stored(
        claimed(None, "l", who, Timestamp::UNIX_EPOCH, &timing()),
        version,
    )
}

#[test]
fn a_leader_stops_before_anybody_may_start() {
    let timing = timing();
    assert!(timing.renew < timing.lease);
    assert!(timing.retry * 4 < timing.renew);
}

#[test]
fn a_lease_that_nobody_has_is_taken_at_once() {
    let now = Instant::now();
    let none = Seen::new(None, now);
    assert_eq!(evaluate(&none, "me", now, &timing()), Step::Create);
    let free = stored(released(&held_by("other", 1), Timestamp::UNIX_EPOCH), 2);
    assert_eq!(
        evaluate(&Seen::new(Some(free), now), "me", now, &timing()),
        Step::Take
    );
    let mine = Seen::new(Some(held_by("me", 1)), now);
    assert_eq!(evaluate(&mine, "me", now, &timing()), Step::Renew);
}

#[test]
fn a_silent_holder_is_replaced_by_our_own_clock_whatever_times_it_wrote() {
    let now = Instant::now();
    // Its renewal is half a century ago by its own clock.
    let mut seen = Seen::new(Some(held_by("other", 1)), now);
    assert!(matches!(
        evaluate(&seen, "me", now, &timing()),
        Step::Wait(_)
    ));
    assert!(matches!(
        evaluate(&seen, "me", now + seconds(14), &timing()),
        Step::Wait(_)
    ));
    assert_eq!(
        evaluate(&seen, "me", now + seconds(15), &timing()),
        Step::Take
    );
    // A renewal starts the wait anew.
    seen.update(Some(held_by("other", 2)), now + seconds(14));
    assert!(matches!(
        evaluate(&seen, "me", now + seconds(28), &timing()),
        Step::Wait(_)
    ));
    assert_eq!(
        evaluate(&seen, "me", now + seconds(29), &timing()),
        Step::Take
    );
    // The same lease again does not.
    seen.update(Some(held_by("other", 2)), now + seconds(20));
    assert_eq!(
        evaluate(&seen, "me", now + seconds(29), &timing()),
        Step::Take
    );
}

#[test]
fn a_lease_that_vanished_is_not_made_again_while_its_holder_may_still_lead() {
    let now = Instant::now();
    let mut seen = Seen::new(Some(held_by("other", 1)), now);
    seen.update(None, now + seconds(1));
    seen.update(None, now + seconds(2));
    assert!(matches!(
        evaluate(&seen, "me", now + seconds(15), &timing()),
        Step::Wait(_)
    ));
    assert_eq!(
        evaluate(&seen, "me", now + seconds(16), &timing()),
        Step::Create
    );
}

#[test]
fn a_takeover_counts_and_a_renewal_does_not() {
    let first = held_by("a", 1).spec.unwrap();
    assert_eq!(first.lease_transitions, Some(0));
    let renewed = claimed(Some(&held_by("a", 1)), "l", "a", Timestamp::MAX, &timing());
    let renewed = renewed.spec.unwrap();
    assert_eq!(renewed.lease_transitions, Some(0));
    assert_eq!(renewed.acquire_time, first.acquire_time);
    let taken = claimed(Some(&held_by("a", 1)), "l", "b", Timestamp::MAX, &timing());
    let taken = taken.spec.unwrap();
    assert_eq!(taken.lease_transitions, Some(1));
    assert_ne!(taken.acquire_time, first.acquire_time);
    assert_eq!(taken.holder_identity.as_deref(), Some("b"));
}

#[test]
fn leadership_ends_by_itself() {
    let leadership = Leadership::by_election();
    assert!(!leadership.is_held());
    leadership.hold_until(Instant::now() + seconds(3600));
    assert!(leadership.is_held());
    leadership.hold_until(Instant::now());
    assert!(!leadership.is_held());
    leadership.hold_until(Instant::now() + seconds(3600));
    leadership.end();
    assert!(!leadership.is_held());
    assert!(Leadership::always().is_held());
}

/// What a candidate does in a history.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// It looks, and acts on what it sees.
    Turn(usize),
    /// It looks and is stopped before it writes: it writes what it decided at its next turn.
    Stall(usize),
    /// So many seconds pass; everybody who is not stalled goes on looking.
    Pass(u64),
    /// Somebody deletes the lease. Once: against who does it again and again no election helps.
    Delete,
}

struct Candidate {
    seen: Option<Seen>,
    /// The version that it decided on, to write later, and when it started.
    decided: Option<(Option<Lease>, Instant)>,
    leads_until: Option<Instant>,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..3_usize).prop_map(Act::Turn),
        2 => (0..3_usize).prop_map(Act::Stall),
        4 => (1..20_u64).prop_map(Act::Pass),
        1 => Just(Act::Delete),
    ];
    prop::collection::vec(act, 1..200)
}

proptest! {
    #[test]
    fn no_two_lead_at_once(acts in acts()) {
        let timing = timing();
        let mut now = Instant::now();
        let mut server: Option<Lease> = None;
        let mut version = 0;
        let mut candidates: Vec<_> = (0..3)
            .map(|_| Candidate { seen: None, decided: None, leads_until: None })
            .collect();
        // Everybody has looked once: a lease that is deleted before anybody saw it is nobody's.
        let mut looked = false;
        let mut deleted = false;
        for act in acts {
            let number = match act {
                Act::Pass(count) => {
                    for _ in 0..count {
                        now += seconds(1);
                        for candidate in &mut candidates {
                            if candidate.decided.is_none() && let Some(seen) = &mut candidate.seen {
                                seen.update(server.clone(), now);
                            }
                        }
                    }
                    continue;
                }
                Act::Delete => {
                    // Nor while the first one of all is still being made.
                    let making = candidates.iter().any(|candidate| matches!(candidate.decided, Some((None, _))));
                    if looked && !deleted && !making {
                        server = None;
                        deleted = true;
                    }
                    continue;
                }
                Act::Turn(number) | Act::Stall(number) => number,
            };
            let me = format!("candidate-{number}");
            if !looked {
                for candidate in &mut candidates { candidate.seen = Some(Seen::new(server.clone(), now)); }
            }
            let candidate = &mut candidates[number];
            let seen = candidate.seen.as_mut().unwrap();
            let (basis, started) = if let Some(decided) = candidate.decided.take() {
                decided
            } else {
                seen.update(server.clone(), now);
                match evaluate(seen, &me, now, &timing) {
                    Step::Wait(_) => continue,
                    Step::Create => (None, now),
                    Step::Take | Step::Renew => (server.clone(), now),
                }
            };
            if matches!(act, Act::Stall(_)) {
                candidate.decided = Some((basis, started));
                continue;
            }
            let current = server.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
            let expected = basis.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
            if current != expected { continue; }
            version += 1;
            server = Some(stored(claimed(basis.as_ref(), "l", &me, Timestamp::UNIX_EPOCH, &timing), version));
            candidate.leads_until = Some(started + timing.renew);
            if !looked {
                looked = true;
                for candidate in &mut candidates {
                    candidate.seen.as_mut().unwrap().update(server.clone(), now);
                }
            }
            let leaders = candidates.iter().filter(|candidate| candidate.leads_until.is_some_and(|until| now < until)).count();
            prop_assert!(leaders <= 1, "{leaders} lead");
        }
    }
}
