//! What happens to a job next: one word for everything that was observed.
//!
//! Nothing is remembered but the status: the same cluster gives the same course after a restart of the controller.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::Input;
use super::observed::{DriverLife, DriverPod, PoolView};
use super::report::{Facts, Outcome};
use crate::api::conditions::{reasons, types};
use crate::plan::pool::Trouble;

/// What a Pod that is being deleted gets beyond its grace period; then its node is taken for lost.
pub(super) const BEYOND_GRACE: Duration = Duration::from_mins(1);
/// The driver watches the deadlines too, and ends with more to tell: it gets so long to do it.
const DRIVERS_OWN: Duration = Duration::from_secs(30);
/// The wait before a second attempt, from the start of the one before; it doubles.
const FIRST_REST: Duration = Duration::from_secs(10);
/// The longest wait before an attempt.
const LONGEST_REST: Duration = Duration::from_mins(5);
/// What the status calls attempts whose Pod ended by itself, without a decision.
pub(super) const LOST: &str = "driver_lost";
/// What it calls attempts whose Pod was deleted, evicted, preempted or lost with its node: they do not count against `backoffLimit`.
pub(super) const DISRUPTED: &str = "driver_disrupted";
/// What the status calls starts of the driver that crashed.
pub(super) const CRASHED: &str = "driver_crashed";

/// What happens next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Course {
    /// The job ended before; what is left of it goes.
    Over,
    /// Nothing can begin yet; what there is stays.
    Wait(Option<Trouble>),
    /// The next attempt is due in so long.
    Rest(Duration),
    /// The next attempt begins, after one that ended without a decision, or after none.
    Begin(Option<Undecided>),
    /// The driver is to run.
    Run,
    /// The driver is told to end.
    Stop(Stop),
    /// The driver ended, or never was; agents go, then the end is written.
    Settle(End),
}

/// How an attempt ended that decided nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    /// By itself.
    Lost,
    /// Its Pod was taken away.
    Disrupted,
}

/// Why a driver has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The job is deleted.
    Delete,
    /// The job is suspended.
    Suspend,
    /// The job fails.
    Fail(Outcome),
}

/// How a job, or its attempt, ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The job is over.
    Decided(Outcome),
    /// It goes on when it is resumed.
    Suspended,
    /// It is deleted.
    Deleted,
}

impl From<Stop> for End {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Delete => Self::Deleted,
            Stop::Suspend => Self::Suspended,
            Stop::Fail(outcome) => Self::Decided(outcome),
        }
    }
}

/// The next course.
pub(super) fn course(input: &Input<'_>) -> Course {
    if input.before.completion_time.is_some() {
        return if input.deletion.is_some() {
            Course::Settle(End::Deleted)
        } else {
            Course::Over
        };
    }
    let stop = stop(input);
    let Some(driver) = input.driver() else {
        return without_driver(input, stop);
    };
    let facts = match &driver.life {
        DriverLife::Ended(facts) => facts.as_deref(),
        _ if is_lost(driver, input.now) => None,
        _ => return stop.map_or(Course::Run, Course::Stop),
    };
    if stop == Some(Stop::Delete) {
        return Course::Settle(End::Deleted);
    }
    match decided(facts) {
        Some(outcome) => Course::Settle(End::Decided(outcome.clone())),
        None => match stop {
            Some(stop) => Course::Settle(stop.into()),
            None => again(input, Some(driver)),
        },
    }
}

fn without_driver(input: &Input<'_>, stop: Option<Stop>) -> Course {
    if let Some(stop) = stop {
        return Course::Settle(stop.into());
    }
    if !input.has_begun() || input.was(types::SUSPENDED) {
        return begin(input, None);
    }
    if input.was_driver_seen() {
        // Somebody removed it, and what held it: nobody knows how it ended.
        return again(input, None);
    }
    Course::Run
}

/// The attempt ended without a decision.
fn again(input: &Input<'_>, driver: Option<&DriverPod>) -> Course {
    let is_lost = driver.is_some_and(|driver| !driver.is_disrupted && driver.leaving.is_none());
    let losses = failures(input, LOST);
    if is_lost && losses >= i64::from(input.spec.backoff_limit) {
        return Course::Settle(End::Decided(backoff_limit(input)));
    }
    let before = losses.saturating_add(failures(input, DISRUPTED));
    let doublings = u32::try_from(before.clamp(0, 16)).unwrap_or(0);
    let rest = FIRST_REST.saturating_mul(1 << doublings).min(LONGEST_REST);
    let since = driver
        .map(|driver| driver.created)
        .or_else(|| driver_ended(input));
    let left = since.map_or(Duration::ZERO, |since| {
        rest.saturating_sub(elapsed(since, input.now))
    });
    if !left.is_zero() {
        return Course::Rest(left);
    }
    let how = if is_lost {
        Undecided::Lost
    } else {
        Undecided::Disrupted
    };
    begin(input, Some(how))
}

/// When the driver of an attempt was last heard, if its Pod is gone.
fn driver_ended(input: &Input<'_>) -> Option<Timestamp> {
    let mut conditions = input.before.conditions.iter();
    let sampling = conditions.find(|was| was.type_ == types::SAMPLING)?;
    Some(sampling.last_transition_time.0)
}

fn begin(input: &Input<'_>, after: Option<Undecided>) -> Course {
    if let Some(refusal) = input.refusal {
        return Course::Wait(Some(refusal.clone()));
    }
    match &input.observed.pool {
        PoolView::Ready(_) => Course::Begin(after),
        PoolView::Unready(_) => Course::Wait(None),
        PoolView::Missing if input.spec.pool.is_some() => Course::Wait(None),
        PoolView::Missing => Course::Wait(Some(Trouble {
            reason: reasons::REFERENCE_NOT_FOUND,
            message: "spec.poolRef: there is no such SGLangPool; create it, or name another"
                .to_owned(),
        })),
        PoolView::OutOfSight => Course::Wait(Some(Trouble {
            reason: reasons::REFERENCE_NOT_FOUND,
            message: "spec.poolRef.namespace: the operator does not look at that namespace: use a pool of this one, or install the operator for both"
                .to_owned(),
        })),
        PoolView::NotAllowed => Course::Wait(Some(Trouble {
            reason: reasons::POOL_NOT_ALLOWED,
            message: "spec.poolRef: the pool does not take jobs of this namespace: add it to the pool's allowedNamespaces"
                .to_owned(),
        })),
    }
}

fn stop(input: &Input<'_>) -> Option<Stop> {
    if input.deletion.is_some() {
        return Some(Stop::Delete);
    }
    if input.spec.suspend {
        return Some(Stop::Suspend);
    }
    let begun = input.has_begun();
    if begun && input.spec.pool.is_none() && input.observed.pool == PoolView::Missing {
        return Some(fail(reasons::POOL_LOST, "the pool was deleted"));
    }
    if begun && deadline(input).is_some_and(|left| left.is_zero()) {
        let message = "activeDeadlineSeconds passed";
        return Some(fail(reasons::DEADLINE_EXCEEDED, message));
    }
    if running_deadline(input).is_some_and(|left| left.is_zero()) {
        let message = "preRunningDeadlineSeconds passed and nothing was generated";
        return Some(fail(reasons::PRE_RUNNING_DEADLINE_EXCEEDED, message));
    }
    let restarts = input.driver().map_or(0, |driver| driver.restarts);
    if i64::from(restarts).saturating_add(failures(input, LOST))
        > i64::from(input.spec.backoff_limit)
    {
        return Some(Stop::Fail(backoff_limit(input)));
    }
    None
}

/// How long until the next deadline.
pub(super) fn next_deadline(input: &Input<'_>) -> Option<Duration> {
    [deadline(input), running_deadline(input)]
        .into_iter()
        .flatten()
        .filter(|left| !left.is_zero())
        .min()
}

fn deadline(input: &Input<'_>) -> Option<Duration> {
    Some(left(input, input.spec.active_deadline_seconds?))
}

fn running_deadline(input: &Input<'_>) -> Option<Duration> {
    let limit = input.spec.pre_running_deadline_seconds?;
    let report = input.observed.report.as_ref();
    let now = report.and_then(|report| report.facts.progress.as_ref());
    let has_generated = [now, input.before.progress.as_ref()]
        .into_iter()
        .flatten()
        .any(|progress| progress.tokens.generated > 0 || progress.groups.kept > 0);
    if has_generated {
        return None;
    }
    Some(left(input, limit))
}

/// Suspended time does not count: the clock starts again with the job.
fn left(input: &Input<'_>, limit: i32) -> Duration {
    let started = input.before.start_time.as_ref();
    let started = started.map_or(input.created, |time| time.0);
    let resumed = input
        .before
        .conditions
        .iter()
        .find(|was| was.type_ == types::SUSPENDED && was.status == "False")
        .map_or(started, |was| was.last_transition_time.0);
    let limit = Duration::from_secs(u64::try_from(limit).unwrap_or(0));
    let own = input.driver().map_or(Duration::ZERO, |_| DRIVERS_OWN);
    let since = elapsed(started.max(resumed), input.now);
    (limit + own).saturating_sub(since)
}

fn fail(reason: &str, message: &str) -> Stop {
    Stop::Fail(Outcome {
        reason: reason.to_owned(),
        message: message.to_owned(),
        success: false,
    })
}

fn backoff_limit(input: &Input<'_>) -> Outcome {
    let crash = input.driver().and_then(|driver| driver.crash.clone());
    let failures = &input.before.recent_failures;
    let before = failures.iter().find(|failure| failure.reason == CRASHED);
    let said = crash
        .or_else(|| before.map(|failure| failure.message.clone()))
        .map(|said| format!(": {said}"))
        .unwrap_or_default();
    Outcome {
        reason: reasons::BACKOFF_LIMIT_EXCEEDED.to_owned(),
        message: format!("the driver failed more often than backoffLimit allows{said}"),
        success: false,
    }
}

fn decided(facts: Option<&Facts>) -> Option<&Outcome> {
    facts?
        .outcome
        .as_ref()
        .filter(|outcome| outcome.is_decided())
}

/// A Pod whose node does not answer is never reported as ended.
pub(super) fn is_lost(driver: &DriverPod, now: Timestamp) -> bool {
    driver
        .leaving
        .is_some_and(|until| elapsed(until, now) > BEYOND_GRACE)
}

/// Whether a driver's Pod was taken away, and has no more to say.
pub(super) fn is_removed(driver: &DriverPod, now: Timestamp) -> bool {
    is_lost(driver, now) || (driver.leaving.is_some() && !driver.is_alive())
}

/// How often something happened in this run.
fn failures(input: &Input<'_>, reason: &str) -> i64 {
    let mut failures = input.before.recent_failures.iter();
    let found = failures.find(|failure| failure.reason == reason);
    found.map_or(0, |failure| failure.count)
}

pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
