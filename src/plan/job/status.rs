//! What a job's status says, and when it is written.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Input;
use super::conditions::View;
use super::course::{CRASHED, Course, DISRUPTED, LOST, Undecided};
use super::observed::DriverLife;
use super::report::{Facts, MOST_FAILURES};
use crate::api::job::{
    Failure, JobDisplay, RolloutJobSpec, RolloutJobStatus, TeardownStatus, WrittenOutput,
};
use crate::plan::conditions::whole_seconds;

/// Between two writes of progress alone.
const PROGRESS_PERIOD: Duration = Duration::from_secs(5);

/// Whether a status is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing changed.
    Never,
    /// Now.
    Now,
    /// Only progress changed, and was written a moment ago.
    In(Duration),
}

/// When a status is written: at once, but for progress.
pub fn due(
    before: &RolloutJobStatus,
    after: &RolloutJobStatus,
    since_written: Option<Duration>,
) -> Due {
    if before == after {
        return Due::Never;
    }
    let quiet = RolloutJobStatus {
        progress: before.progress.clone(),
        teardown: before.teardown.clone(),
        recent_failures: before.recent_failures.clone(),
        display: before.display.clone(),
        ..after.clone()
    };
    let left = since_written.map_or(Duration::ZERO, |since| {
        PROGRESS_PERIOD.saturating_sub(since)
    });
    if quiet == *before && !left.is_zero() {
        Due::In(left)
    } else {
        Due::Now
    }
}

/// The status.
pub(super) fn status(input: &Input<'_>, course: &Course) -> RolloutJobStatus {
    let before = input.before;
    if *course == Course::Over || (before.completion_time.is_some()) {
        // The end is written, and does not change.
        return RolloutJobStatus {
            observed_generation: input.generation,
            ..before.clone()
        };
    }
    let facts = facts(input);
    let view = View {
        input,
        course,
        facts: &facts,
    };
    let end = view.end();
    let begins = matches!(course, Course::Begin(_));
    let now = || Some(Time(whole_seconds(input.now)));
    let groups = facts.progress.as_ref().map(|progress| progress.groups);
    RolloutJobStatus {
        observed_generation: input.generation,
        phase: Some(view.phase()),
        attempt: before.attempt.saturating_add(i32::from(begins)),
        start_time: match &before.start_time {
            None if begins => now(),
            was => was.clone(),
        },
        completion_time: end.and_then(|_| now()),
        rerun_id: Some(input.spec.rerun_id.clone()).filter(|id| !id.is_empty()),
        conditions: view.conditions(),
        teardown: teardown(input, &facts, course),
        output: facts.output.clone().map(|output| WrittenOutput {
            url: place(input.spec),
            ..output
        }),
        recent_failures: failures(input, &facts, course),
        display: Some(JobDisplay {
            groups: groups.map(|groups| format!("{}/{}", groups.kept, groups.target)),
            pool: Some(pool_name(input)),
        }),
        progress: facts.progress,
    }
}

/// The ladder's numbers, and how many of the agents' Pods were left to delete: those that were seen at once, so that a look that is behind counts
/// none twice.
fn teardown(input: &Input<'_>, facts: &Facts, course: &Course) -> Option<TeardownStatus> {
    if matches!(course, Course::Begin(_)) {
        return None;
    }
    let left = match course {
        Course::Settle(_) => input.observed.agents.len(),
        _ => 0,
    };
    let before = input.before.teardown.as_ref();
    let deleted = before
        .map_or(0, |before| before.pods_deleted)
        .max(i64::try_from(left).unwrap_or(i64::MAX));
    if facts.teardown.is_none() && deleted == 0 {
        return None;
    }
    Some(TeardownStatus {
        pods_deleted: deleted,
        ..facts.teardown.clone().unwrap_or_default()
    })
}

/// Where the samples are, for whoever is not in the driver's Pod: a volume as `pvc://claim/path`, as other operators write it.
fn place(spec: &RolloutJobSpec) -> Option<String> {
    let output = spec.output.as_ref()?;
    let mut parts = match &output.persistent_volume_claim {
        Some(claim) => vec![
            format!("pvc://{}", claim.claim_name),
            claim.path.clone().unwrap_or_default(),
        ],
        None => vec![output.url.clone()?],
    };
    parts.push(spec.rerun_id.clone());
    let parts = parts.iter().map(|part| part.trim_end_matches('/'));
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    Some(parts.join("/"))
}

fn pool_name(input: &Input<'_>) -> String {
    let reference = input.spec.pool_ref.as_ref();
    reference.map_or_else(
        || input.name.to_owned(),
        |reference| match &reference.namespace {
            Some(namespace) => format!("{namespace}/{}", reference.name),
            None => reference.name.clone(),
        },
    )
}

/// What is known: the last word, else what the driver says, else what it said before.
fn facts(input: &Input<'_>) -> Facts {
    let ended = input.driver().and_then(|driver| match &driver.life {
        DriverLife::Ended(facts) => facts.as_deref(),
        _ => None,
    });
    let said = input.observed.report.as_ref().map(|report| &report.facts);
    let said = ended.or(said).cloned().unwrap_or_default();
    let before = input.before;
    Facts {
        outcome: said.outcome,
        // One that has just started, and has not read its ledger yet, counts from nothing.
        progress: said
            .progress
            .filter(|progress| progress.groups.target > 0)
            .or_else(|| before.progress.clone()),
        teardown: said.teardown.or_else(|| before.teardown.clone()),
        output: said.output.or_else(|| before.output.clone()),
        failures: if said.failures.is_empty() {
            before.recent_failures.clone()
        } else {
            said.failures
        },
    }
}

/// The driver's, and what it cannot say itself: how often it crashed, was lost or taken away.
fn failures(input: &Input<'_>, facts: &Facts, course: &Course) -> Vec<Failure> {
    let was = |reason: &str| {
        let mut before = input.before.recent_failures.iter();
        before.find(|failure| failure.reason == reason).cloned()
    };
    let crashed = input
        .driver()
        .filter(|driver| driver.restarts > 0)
        .map(|driver| Failure {
            reason: CRASHED.to_owned(),
            message: driver.crash.clone().unwrap_or_default(),
            count: i64::from(driver.restarts),
        })
        .or_else(|| was(CRASHED));
    let more = |how: Undecided| i64::from(*course == Course::Begin(Some(how)));
    let undecided = [
        (
            LOST,
            Undecided::Lost,
            "the driver's pod ended without a decision",
        ),
        (
            DISRUPTED,
            Undecided::Disrupted,
            "the driver's pod was deleted, evicted or lost with its node",
        ),
    ]
    .map(|(reason, how, message)| Failure {
        reason: reason.to_owned(),
        message: message.to_owned(),
        count: was(reason).map_or(0, |failure| failure.count) + more(how),
    });
    let undecided = undecided.into_iter().filter(|failure| failure.count > 0);
    let ours: Vec<_> = crashed.into_iter().chain(undecided).collect();
    let mut failures: Vec<_> = facts
        .failures
        .iter()
        .filter(|failure| ![LOST, DISRUPTED, CRASHED].contains(&failure.reason.as_str()))
        .cloned()
        .collect();
    failures.truncate(MOST_FAILURES - ours.len());
    failures.extend(ours);
    failures
}
