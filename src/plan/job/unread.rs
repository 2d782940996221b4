//! The end of a job that cannot be read: what its Pods' metadata and phases say is enough.
//!
//! Its driver goes first, and ends what is in flight as for any job; what it says then is read by nobody. A Pod whose node does not answer is
//! not waited for.

use k8s_openapi::jiff::Timestamp;

use std::time::Duration;

use super::Plan;
use super::course::{BEYOND_GRACE, elapsed};

/// A Pod of a job that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remnant {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What it is.
    pub role: Role,
    /// By when it has to be gone, once it is being deleted.
    pub leaving: Option<Timestamp>,
    /// Whether all of it has ended.
    pub has_ended: bool,
    /// Whether it is held until its last word is in the job's status.
    pub is_held: bool,
}

/// What a Pod of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A driver: it uses the others until it has ended.
    Driver,
    /// Whatever else.
    Other,
}

/// What is done about the Pods, and whether all else of the job, and the job, may go.
pub fn end_unread(pods: &[Remnant], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let left = |pod: &&Remnant| !pod.has_ended && !is_lost(pod, now);
    for role in [Role::Driver, Role::Other] {
        let these = || pods.iter().filter(move |pod| pod.role == role);
        for pod in these().filter(|pod| pod.leaving.is_none()) {
            plan.stop.push((pod.name.clone(), pod.uid.clone()));
        }
        if these().any(|pod| left(&pod)) {
            let until = these().filter(left).filter_map(|pod| pod.leaving).max();
            let beyond = BEYOND_GRACE + Duration::from_secs(1);
            plan.again = until.map(|until| elapsed(now, until) + beyond);
            return plan;
        }
    }
    let held = pods.iter().filter(|pod| pod.is_held);
    plan.release = held
        .map(|pod| (pod.name.clone(), pod.uid.clone()))
        .collect();
    plan.clear = true;
    plan
}

fn is_lost(pod: &Remnant, now: Timestamp) -> bool {
    pod.leaving
        .is_some_and(|until| elapsed(until, now) > BEYOND_GRACE)
}
