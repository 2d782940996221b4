//! Who leads, decided from a Lease: pure.
//!
//! Two clocks never meet: whether a lease ran out is judged by when *we* last saw it change, on our own clock. A leader holds itself to a
//! deadline below the lease's duration, counted from before its renewal was sent, so that it has stopped when anybody else may start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

/// Times of an election.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a lease holds without a renewal, for those who wait for it.
    pub lease: Duration,
    /// How long a leader leads after its last renewal.
    pub renew: Duration,
    /// Between two looks, and two renewals.
    pub retry: Duration,
}

impl Timing {
    /// Times for a lease of so many seconds (at least 3): the leader gives up at two thirds, and renews five times before that.
    pub fn of_lease(seconds: u32) -> Self {
        let lease = Duration::from_secs(u64::from(seconds.max(3)));
        let renew = lease * 2 / 3;
        Self {
            lease,
            renew,
            retry: renew / 5,
        }
    }
}

/// Whether this process may write. Cheap to ask, and asked before every write.
#[derive(Clone, Debug)]
pub struct Leadership(Option<Arc<Mutex<Option<Instant>>>>);

impl Leadership {
    /// Without an election: always.
    pub fn always() -> Self {
        Self(None)
    }

    /// By election: not yet.
    pub fn by_election() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether it leads at this moment. A process that was stopped and woke up finds its time over, however long it slept.
    pub fn is_held(&self) -> bool {
        let Some(until) = &self.0 else {
            return true;
        };
        until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Leads until then.
    pub fn hold_until(&self, until: Instant) {
        if let Some(held) = &self.0 {
            *held.lock() = Some(until);
        }
    }

    /// Leads no more.
    pub fn end(&self) {
        if let Some(held) = &self.0 {
            *held.lock() = None;
        }
    }
}

/// A lease as we saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// None: there is no such object.
    pub lease: Option<Lease>,
    since: Instant,
    /// It was there before: whoever held it may not know yet that it is gone.
    vanished: bool,
}

impl Seen {
    /// The first look.
    pub fn new(lease: Option<Lease>, now: Instant) -> Self {
        Self {
            lease,
            since: now,
            vanished: false,
        }
    }

    /// The next look. The same lease keeps the time when it was first seen so.
    pub fn update(&mut self, lease: Option<Lease>, now: Instant) {
        let version = |lease: &Option<Lease>| {
            let lease = lease.as_ref()?;
            lease.metadata.resource_version.clone()
        };
        if version(&lease) != version(&self.lease) {
            self.since = now;
        }
        self.vanished = lease.is_none() && (self.vanished || self.lease.is_some());
        self.lease = lease;
    }

    /// Who holds it.
    pub fn holder(&self) -> Option<&str> {
        let holder = self.spec()?.holder_identity.as_deref()?;
        (!holder.is_empty()).then_some(holder)
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.as_ref()?.spec.as_ref()
    }
}

/// What to do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make it; never over one that is there.
    Create,
    /// Take it over: nobody holds it, or its holder is silent.
    Take,
    /// Renew it: it is ours.
    Renew,
    /// Look again after this time.
    Wait(Duration),
}

/// What to do.
pub fn evaluate(seen: &Seen, me: &str, now: Instant, timing: &Timing) -> Step {
    let silent = now.saturating_duration_since(seen.since);
    if seen.lease.is_none() {
        let wait = timing.lease.saturating_sub(silent);
        return if seen.vanished && !wait.is_zero() {
            Step::Wait(timing.retry.min(wait))
        } else {
            Step::Create
        };
    }
    let Some(holder) = seen.holder() else {
        return Step::Take;
    };
    if holder == me {
        return Step::Renew;
    }
    let seconds = seen.spec().and_then(|spec| spec.lease_duration_seconds);
    let holds = seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(timing.lease, Duration::from_secs);
    if silent >= holds {
        Step::Take
    } else {
        Step::Wait(timing.retry.min(holds.saturating_sub(silent)))
    }
}

/// The lease as we want it, from the one that is there.
pub fn claimed(
    current: Option<&Lease>,
    name: &str,
    me: &str,
    wall: Timestamp,
    timing: &Timing,
) -> Lease {
    let mut lease = current.cloned().unwrap_or_default();
    lease.metadata.name = Some(name.to_owned());
    let spec = lease.spec.get_or_insert_default();
    let ours = spec.holder_identity.as_deref() == Some(me);
    if !ours {
        let transitions = spec.lease_transitions.unwrap_or(0);
        spec.lease_transitions = Some(if current.is_some() {
            transitions.saturating_add(1)
        } else {
            0
        });
        spec.acquire_time = Some(MicroTime(wall));
    }
    spec.holder_identity = Some(me.to_owned());
    spec.lease_duration_seconds = i32::try_from(timing.lease.as_secs()).ok();
    spec.renew_time = Some(MicroTime(wall));
    lease
}

/// The lease as it is left: anybody may take it at once.
pub fn released(current: &Lease, wall: Timestamp) -> Lease {
    let mut lease = current.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(wall));
    lease
}
