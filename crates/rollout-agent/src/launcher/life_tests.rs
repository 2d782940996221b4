//! The decisions about one session's end, with a clock that stands still.

use std::time::Duration;

use serde_json::Map;
use tokio::time::Instant;

use super::{Command, Event, Life};
use crate::{
    launcher::{outcome::Cause, router::AbortEvent},
    wire::{Abort, AbortDone, HookResult},
};

const GRACE: Duration = Duration::from_millis(500);

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn abort(drain_seconds: Option<f64>) -> Event {
    Event::Abort(AbortEvent {
        abort_id: "a".to_owned(),
        reason: String::new(),
        timeout_seconds: 30.0,
        drain_seconds,
        args: Map::new(),
    })
}

fn own_abort(timeout_seconds: f64) -> Abort {
    Abort {
        abort_id: "own".to_owned(),
        timeout_seconds,
        args: Map::new(),
    }
}

fn stop() -> Event {
    Event::Stop {
        abort: own_abort(4.0),
        shim: at(1.0),
    }
}

fn done(abort_id: &str, result: HookResult) -> Event {
    Event::HookDone(AbortDone {
        abort_id: abort_id.to_owned(),
        result,
        error: None,
    })
}

/// When the agent is cancelled, in seconds after the abort, for a hook that ends after two seconds.
fn cancelled_after(drain: Option<f64>, result: HookResult) -> f64 {
    let start = Instant::now();
    let mut life = Life::new(None, GRACE);
    assert!(matches!(
        life.on(abort(drain), start),
        Some(Command::RunHook(_))
    ));
    assert!(life.waits_for_hook());
    assert_eq!(
        life.timer(),
        None,
        "nothing is cancelled while the hook runs"
    );
    assert_eq!(life.on(done("a", result), start + at(2.0)), None);
    assert_eq!(life.cause(), Some(Cause::Aborted));
    (life.timer().unwrap() - start).as_secs_f64()
}

#[test]
fn an_abort_without_a_drain_time_cancels_after_the_hook() {
    for result in [
        HookResult::Succeeded,
        HookResult::Failed,
        HookResult::TimedOut,
    ] {
        assert!((cancelled_after(None, result) - 2.0).abs() < 1e-6);
    }
}

#[test]
fn without_a_hook_and_a_drain_time_the_agent_has_the_hooks_time() {
    assert!((cancelled_after(None, HookResult::None) - 30.0).abs() < 1e-6);
}

#[test]
fn the_drain_time_counts_from_the_abort_and_never_cuts_the_hook() {
    for result in [HookResult::None, HookResult::Succeeded] {
        assert!((cancelled_after(Some(60.0), result) - 60.0).abs() < 1e-6);
        assert!((cancelled_after(Some(1.0), result) - 2.0).abs() < 1e-6);
    }
}

#[test]
fn a_deadline_cancels_and_a_shim_that_does_not_answer_is_given_up() {
    let start = Instant::now();
    let mut life = Life::new(Some(start + at(5.0)), GRACE);
    assert_eq!(life.timer(), Some(start + at(5.0)));
    assert_eq!(life.on_timer(start + at(5.0)), Command::Cancel);
    assert_eq!(life.cause(), Some(Cause::Deadline));
    let give_up_at = life.timer().unwrap();
    assert!(give_up_at > start + at(5.0) + GRACE);
    assert_eq!(life.on_timer(give_up_at), Command::GiveUp);
}

#[test]
fn a_deadline_within_the_drain_cancels_and_the_cause_stays_the_abort() {
    let start = Instant::now();
    let mut life = Life::new(Some(start + at(5.0)), GRACE);
    life.on(abort(Some(60.0)), start);
    life.on(done("a", HookResult::Succeeded), start);
    assert_eq!(life.timer(), Some(start + at(5.0)));
    assert_eq!(life.on_timer(start + at(5.0)), Command::Cancel);
    assert_eq!(life.cause(), Some(Cause::Aborted));
}

#[test]
fn a_pod_that_stops_gives_the_hook_a_part_of_its_time_and_no_more() {
    let start = Instant::now();
    let mut life = Life::new(None, GRACE);
    assert!(matches!(life.on(stop(), start), Some(Command::RunHook(_))));
    assert_eq!(life.timer(), Some(start + at(4.0)));
    life.on(done("own", HookResult::Succeeded), start + at(1.0));
    assert_eq!(life.timer(), Some(start + at(1.0)));
    assert_eq!(life.cause(), Some(Cause::Stopping));
}

#[test]
fn a_pod_that_stops_waits_for_no_shim_beyond_its_time() {
    let start = Instant::now();
    let mut life = Life::new(None, GRACE);
    life.on(stop(), start);
    // Neither the hook nor the shim says anything.
    assert_eq!(life.on_timer(start + at(4.0)), Command::Cancel);
    assert_eq!(life.timer(), Some(start + at(4.0) + GRACE + at(1.0)));
    assert_eq!(life.on_timer(start + at(5.5)), Command::GiveUp);
    // A session that is being cancelled when the pod is told to end is not waited for longer either.
    let mut life = Life::new(Some(start), GRACE);
    assert_eq!(life.on_timer(start), Command::Cancel);
    life.on(stop(), start + at(2.0));
    assert_eq!(life.timer(), Some(start + at(2.0) + GRACE + at(1.0)));
}

#[test]
fn a_stop_shortens_the_drain_of_an_abort_and_runs_no_second_hook() {
    let start = Instant::now();
    let mut life = Life::new(None, GRACE);
    life.on(abort(Some(600.0)), start);
    assert_eq!(life.on(stop(), start + at(1.0)), None);
    life.on(done("a", HookResult::Succeeded), start + at(2.0));
    assert_eq!(life.timer(), Some(start + at(2.0)));
    assert_eq!(life.cause(), Some(Cause::Aborted));
    assert_eq!(life.hook().unwrap().abort_id, "a");
}

#[test]
fn the_report_of_another_abort_is_not_this_ones() {
    let start = Instant::now();
    let mut life = Life::new(None, GRACE);
    life.on(abort(None), start);
    life.on(done("b", HookResult::Succeeded), start);
    assert!(life.waits_for_hook());
    assert_eq!(life.hook(), None);
}

#[test]
fn a_session_that_the_router_forgot_is_cancelled_at_once() {
    let start = Instant::now();
    let mut life = Life::new(Some(start + at(5.0)), GRACE);
    assert_eq!(life.on(Event::Gone, start + at(1.0)), None);
    assert_eq!(life.timer(), Some(start + at(1.0)));
    assert_eq!(life.cause(), Some(Cause::Gone));
}

#[test]
fn a_lost_router_is_an_abort_of_the_launchers_own() {
    let start = Instant::now();
    let mut life = Life::new(None, GRACE);
    assert_eq!(
        life.on(Event::RouterLost(own_abort(4.0)), start),
        Some(Command::RunHook(own_abort(4.0)))
    );
    life.on(done("own", HookResult::None), start + at(1.0));
    assert_eq!(life.timer(), Some(start + at(1.0)));
    assert_eq!(life.cause(), Some(Cause::RouterLost));
}
