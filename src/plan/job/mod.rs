//! What is done about a job, from what was observed: pure.
//!
//! ```text
//! spec, status, Pods, the driver's words, the time -> course -> acts and status
//! ```
//!
//! Guarantees: the status comes before the acts that it permits (an attempt's number before its Pod, the end before the driver's last word is
//! let go); every wait has a deadline; an object that ended gives no acts.

mod agents;
mod conditions;
mod course;
mod observed;
mod report;
mod status;
mod unread;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

pub use agents::AgentsPlan;
pub use observed::{
    AgentLife, AgentPod, AgentsRefusal, DriverLife, DriverPod, EndCause, Holder, Memory, Observed,
    PodEnd, PoolView, Surplus,
};
pub use report::{Demand, Doing, Facts, Outcome, Report};
pub use status::{Due, due};
pub use unread::{Remnant, Role, end_unread};

use self::course::{Course, End};
use super::pool::Trouble;
use crate::api::conditions::{reasons, types};
use crate::api::job::{Cleanup, RolloutJobSpec, RolloutJobStatus};

/// The first waits for what is missing.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST_PATIENCE: Duration = Duration::from_secs(30);

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// What the job wants.
    pub spec: &'a RolloutJobSpec,
    /// Its status as it is.
    pub before: &'a RolloutJobStatus,
    /// Version of the operator.
    pub version: &'a str,
    /// Generation of the spec.
    pub generation: i64,
    /// When the job was made.
    pub created: Timestamp,
    /// When its deletion was asked for.
    pub deletion: Option<Timestamp>,
    /// Whether the job is held until its teardown is complete.
    pub is_held: bool,
    /// Why the spec cannot work.
    pub refusal: Option<&'a Trouble>,
    /// Why the acts of the last look failed.
    pub hindrance: Option<&'a Trouble>,
    /// What there is.
    pub observed: &'a Observed,
    /// Now.
    pub now: Timestamp,
}

/// What is done: the status first, then the rest in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an act of its own, done or not"
)]
pub struct Plan {
    /// The job's status.
    pub status: RolloutJobStatus,
    /// Whether an attempt is about to begin: what the spec names has to be there, and is looked up before the status is written.
    pub looks_up: bool,
    /// Whether the job is to be held until its teardown is complete.
    pub hold: bool,
    /// Whether its own pool is to be there, if it has one.
    pub pool: bool,
    /// Whether the attempt's objects are to be there.
    pub objects: bool,
    /// Whether its settings are among them: those that a driver of another version was started with stay as that version wrote them, for its
    /// containers that are started again in place.
    pub settings: bool,
    /// Whether the driver's Pod is to be made.
    pub driver: bool,
    /// Agents' Pods.
    pub agents: AgentsPlan,
    /// Drivers to delete: name and UID.
    pub stop: Vec<(String, String)>,
    /// Drivers whose last word is in the status, or that have none.
    pub release: Vec<(String, String)>,
    /// Whether everything else of the job goes, and then what holds the job.
    pub clear: bool,
    /// Whether the job itself is deleted.
    pub delete: bool,
    /// When to look again, if nothing changes.
    pub again: Option<Duration>,
}

/// The plan for a job.
pub fn decide(input: &Input<'_>) -> Plan {
    let fresh;
    let mut input = *input;
    if is_rerun(&input) {
        fresh = rerun(input.before);
        input.before = &fresh;
    }
    let course = course::course(&input);
    let mut plan = Plan {
        status: status::status(&input, &course),
        again: course::next_deadline(&input),
        ..Plan::default()
    };
    old_drivers(&input, &mut plan);
    match &course {
        Course::Over => over(&input, &mut plan),
        Course::Wait(trouble) => {
            let_go(&input, &mut plan);
            plan.looks_up = trouble.is_none();
            if input.refusal.is_some_and(heals) {
                plan.sooner(patience(&input));
            }
            plan.pool = input.refusal.is_none();
            plan.hold = plan.pool && input.spec.pool.is_some();
            plan.agents = agents::none(&input.observed.agents);
        }
        Course::Rest(left) => {
            let_go(&input, &mut plan);
            (plan.hold, plan.pool) = (true, true);
            plan.sooner(*left);
        }
        // The number is written first; the attempt's objects are the next look's.
        Course::Begin(_) => {
            (plan.looks_up, plan.hold, plan.pool) = (true, true, true);
            plan.sooner(Duration::ZERO);
        }
        Course::Run => run(&input, &mut plan),
        Course::Stop(_) => {
            plan.hold = input.deletion.is_none();
            stop(&input, &mut plan);
        }
        Course::Settle(end) => settle(&input, end, &mut plan),
    }
    plan
}

/// Whether what is refused may be taken without an edit of the job.
fn heals(refusal: &Trouble) -> bool {
    !matches!(
        refusal.reason,
        reasons::INVALID_SPEC | reasons::NOT_SUPPORTED
    )
}

/// Between two looks for what is missing: nobody tells when it is there. The longer it has been missing, the longer.
fn patience(input: &Input<'_>) -> Duration {
    let conditions = &input.before.conditions;
    let stalled = conditions
        .iter()
        .find(|was| was.type_ == types::STALLED && was.status == "True");
    let since = stalled.map_or(Duration::ZERO, |was| {
        course::elapsed(was.last_transition_time.0, input.now)
    });
    (since / 10).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
}

/// Drivers of attempts that are over.
fn old_drivers(input: &Input<'_>, plan: &mut Plan) {
    let current = input.driver().map(|driver| &driver.uid);
    for driver in &input.observed.drivers {
        // The one of the run before stays for its log until the next attempt is there.
        let is_over = input.has_begun() && Some(&driver.uid) != current;
        if is_over {
            plan.release(driver);
            plan.stop(driver);
        }
    }
}

/// A driver that somebody took away and that decided nothing: its numbers are in the status, and nothing is held up, such as the end of its
/// namespace.
fn let_go(input: &Input<'_>, plan: &mut Plan) {
    let driver = input.driver();
    if let Some(driver) = driver.filter(|driver| course::is_removed(driver, input.now)) {
        plan.release(driver);
    }
}

fn run(input: &Input<'_>, plan: &mut Plan) {
    (plan.hold, plan.pool) = (true, true);
    // What was applied stays while the spec cannot be built: an upgrade of the operator ends no run.
    plan.objects = true;
    plan.settings = input
        .driver()
        .is_none_or(|driver| driver.version.as_deref() == Some(input.version));
    plan.driver = input.driver().is_none();
    let Some(agentic) = input.agents() else {
        return;
    };
    let leaving = input
        .driver()
        .is_some_and(|driver| driver.leaving.is_some());
    let report = input.observed.report.as_ref();
    let demand = report
        .filter(|report| report.doing == Doing::Generating && !leaving)
        .and_then(|report| report.demand);
    plan.agents = agents::some(
        input.spec,
        agentic,
        input.before.attempt,
        demand,
        &input.observed.agents,
        &input.observed.memory,
        input.now,
    );
    if let Some(again) = plan.agents.again {
        plan.sooner(again);
    }
}

fn stop(input: &Input<'_>, plan: &mut Plan) {
    let Some(driver) = input.driver() else { return };
    plan.stop(driver);
    if let Some(until) = driver.leaving {
        let left = course::elapsed(input.now, until) + course::BEYOND_GRACE;
        plan.sooner(left + Duration::from_secs(1));
    }
}

fn settle(input: &Input<'_>, end: &End, plan: &mut Plan) {
    plan.agents = agents::none(&input.observed.agents);
    plan.hold = input.deletion.is_none() && *end != End::Suspended;
    if input.spec.pool.is_some() && *end == End::Suspended && input.refusal.is_none() {
        // It follows the job's suspend.
        (plan.pool, plan.hold) = (true, true);
    }
    plan.hold |= input.is_held && input.deletion.is_none();
    let waits = input.agents_left().filter_map(|pod| pod.leaving);
    if let Some(until) = waits.max() {
        let left = course::elapsed(input.now, until) + course::BEYOND_GRACE;
        plan.sooner(left + Duration::from_secs(1));
    }
    if input.agents_left().next().is_some() {
        return;
    }
    if let Some(driver) = input.driver() {
        plan.release(driver);
        if matches!(end, End::Suspended | End::Deleted) {
            plan.stop(driver);
        }
    }
    if *end == End::Deleted {
        plan.clear = input.is_held;
    }
}

fn over(input: &Input<'_>, plan: &mut Plan) {
    plan.again = None;
    plan.agents = agents::none(&input.observed.agents);
    for driver in &input.observed.drivers {
        plan.release(driver);
    }
    plan.clear = input.is_held;
    let cleanup = input.spec.cleanup.unwrap_or_default();
    let ended = input.before.completion_time.as_ref();
    let (Some(ttl), Some(ended)) = (input.spec.ttl_seconds_after_finished, ended) else {
        return;
    };
    let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or(0));
    let left = ttl.saturating_sub(course::elapsed(ended.0, input.now));
    match cleanup {
        Cleanup::None => {}
        _ if !left.is_zero() => plan.sooner(left),
        Cleanup::Children => {
            for driver in &input.observed.drivers {
                plan.stop(driver);
            }
        }
        Cleanup::Job => plan.delete = true,
    }
}

/// Whether a finished job is to run again.
fn is_rerun(input: &Input<'_>) -> bool {
    let before = input.before;
    before.completion_time.is_some()
        && input.deletion.is_none()
        && before.rerun_id.as_deref().unwrap_or_default() != input.spec.rerun_id
}

/// The number of the attempt stays: names of the run before are not used again.
fn rerun(before: &RolloutJobStatus) -> RolloutJobStatus {
    RolloutJobStatus {
        attempt: before.attempt,
        ..RolloutJobStatus::default()
    }
}

impl Plan {
    fn sooner(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }

    fn stop(&mut self, driver: &DriverPod) {
        if driver.leaving.is_none() {
            self.stop.push((driver.name.clone(), driver.uid.clone()));
        }
    }

    fn release(&mut self, driver: &DriverPod) {
        if driver.is_held {
            self.release.push((driver.name.clone(), driver.uid.clone()));
        }
    }
}

impl<'a> Input<'a> {
    /// Whether an attempt of this run was begun.
    fn has_begun(&self) -> bool {
        self.before.start_time.is_some()
    }

    /// The driver of the current attempt.
    fn driver(&self) -> Option<&'a DriverPod> {
        if !self.has_begun() {
            return None;
        }
        let attempt = self.before.attempt;
        let mut drivers = self.observed.drivers.iter();
        drivers.find(|driver| driver.attempt == attempt)
    }

    /// Whether the driver of the current attempt was ever heard of.
    fn was_driver_seen(&self) -> bool {
        let conditions = &self.before.conditions;
        let sampling = conditions.iter().find(|was| was.type_ == types::SAMPLING);
        sampling.is_some_and(|was| was.status == "True" || was.reason != reasons::STARTING)
    }

    /// Whether the driver of the current attempt was ever heard of, or has ended now.
    fn was_driver_heard(&self) -> bool {
        let ended = self.driver().is_some_and(|driver| !driver.is_alive());
        self.has_begun() && (ended || self.was_driver_seen())
    }

    fn was(&self, about: &str) -> bool {
        let conditions = &self.before.conditions;
        conditions
            .iter()
            .any(|was| was.type_ == about && was.status == "True")
    }

    /// The agents, where they run in Pods.
    fn agents(&self) -> Option<&'a crate::api::job::Agentic> {
        let agentic = self.spec.generate.agentic.as_ref();
        agentic.filter(|agentic| agentic.agent.server.is_none())
    }

    /// Agents' Pods that may still do something. One whose node is lost is not waited for.
    fn agents_left(&self) -> impl Iterator<Item = &'a AgentPod> {
        let now = self.now;
        self.observed.agents.iter().filter(move |pod| {
            pod.leaving
                .is_none_or(|until| course::elapsed(until, now) <= course::BEYOND_GRACE)
        })
    }
}
