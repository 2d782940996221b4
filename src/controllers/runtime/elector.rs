//! Takes part in an election, renews the lease, and gives it back (P9).
//!
//! ```text
//!  look -> somebody else holds it: wait, look again        (standby)
//!       -> nobody, or silent for its duration: take it     (resourceVersion: one of many wins)
//!       -> ours: renew; not renewed in time or taken: lost (the process ends)
//! ```

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::election::{self, Leadership, Seen, Step, Timing};
use crate::controllers::{Class, Error};

/// Where an elector stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The lease was not read yet.
    Unknown,
    /// Somebody else leads.
    Standby {
        /// Who.
        holder: String,
    },
    /// We lead.
    Leading,
}

/// One candidate.
pub struct Elector {
    leases: Api<Lease>,
    namespace: String,
    name: String,
    me: String,
    timing: Timing,
    leadership: Leadership,
    standing: watch::Sender<Standing>,
}

impl Elector {
    /// A candidate for a lease. `me` must differ from every other candidate's, also from an earlier process of the same pod.
    pub fn new(
        client: Client,
        (namespace, name): (&str, &str),
        me: String,
        timing: Timing,
        leadership: Leadership,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            me,
            timing,
            leadership,
            standing: watch::Sender::new(Standing::Unknown),
        }
    }

    /// Where it stands.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Stands for election until told to stop; then gives the lease back. An error: it led, and leads no more.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        let mut seen: Option<Seen> = None;
        let mut held: Option<Held> = None;
        loop {
            // Not cut short by a stop: a write whose answer nobody heard could not be given back. It has a limit of its own.
            let outcome = self.step(&mut seen, &mut held).await;
            let wait = self.settle(outcome, held.as_ref())?;
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.leadership.end();
        if let Some(held) = held {
            self.release(held).await;
        }
        Ok(())
    }

    /// One look, and what follows from it.
    async fn step(
        &self,
        seen: &mut Option<Seen>,
        held: &mut Option<Held>,
    ) -> Result<Duration, kube::Error> {
        let started = Instant::now();
        if let Some(current) = held {
            // Who was stopped finds out here, before it says that it still leads.
            if started >= current.until {
                return Ok(Duration::ZERO);
            }
            match self.write(Step::Renew, Some(&current.lease)).await {
                Ok(lease) => self.lead(held, lease, started),
                // Perhaps our own renewal, whose answer was lost.
                Err(error) if Class::of(&error) == Class::Conflict => {
                    let lease = self.limited(self.leases.get(&self.name)).await?;
                    if holder(&lease) != Some(&self.me) {
                        return Err(error);
                    }
                    current.lease = lease;
                    return Ok(Duration::ZERO);
                }
                Err(error) => return Err(error),
            }
            return Ok(self.timing.retry);
        }
        let lease = self.limited(self.leases.get_opt(&self.name)).await?;
        let now = Instant::now();
        let seen = match seen {
            Some(seen) => {
                seen.update(lease, now);
                seen
            }
            None => seen.insert(Seen::new(lease, now)),
        };
        let step = election::evaluate(seen, &self.me, now, &self.timing);
        if let Step::Wait(wait) = step {
            let holder = seen.holder().unwrap_or_default().to_owned();
            self.stands(Standing::Standby { holder });
            return Ok(wait);
        }
        let lease = self.write(step, seen.lease.as_ref()).await?;
        self.lead(held, lease, started);
        Ok(self.timing.retry)
    }

    fn lead(&self, held: &mut Option<Held>, lease: Lease, started: Instant) {
        let until = started + self.timing.renew;
        self.leadership.hold_until(until);
        if held.is_none() {
            tracing::info!(lease = %self.lease(), me = %self.me, "leading");
            self.stands(Standing::Leading);
        }
        *held = Some(Held { lease, until });
    }

    /// Tells where it stands, when that is news: a standby looks every few seconds.
    fn stands(&self, now: Standing) {
        self.standing.send_if_modified(|standing| {
            let is_news = *standing != now;
            *standing = now;
            is_news
        });
    }

    /// What a look means for the leadership, and when to look again.
    fn settle(
        &self,
        outcome: Result<Duration, kube::Error>,
        held: Option<&Held>,
    ) -> Result<Duration, Error> {
        let over = held.is_some_and(|held| Instant::now() >= held.until);
        if over {
            return Err(self.lost("it was not renewed in time"));
        }
        match outcome {
            Ok(wait) => Ok(wait),
            Err(error) if held.is_some() && Class::of(&error) == Class::Conflict => {
                Err(self.lost("another controller took it"))
            }
            Err(error) if held.is_some() && Class::of(&error) == Class::NotFound => {
                Err(self.lost("somebody deleted it"))
            }
            Err(error) => {
                tracing::warn!(lease = %self.lease(), %error, "cannot take part in the election");
                Ok(self.timing.retry)
            }
        }
    }

    async fn write(&self, step: Step, current: Option<&Lease>) -> Result<Lease, kube::Error> {
        let lease = election::claimed(
            current,
            &self.name,
            &self.me,
            Timestamp::now(),
            &self.timing,
        );
        let params = PostParams::default();
        match step {
            Step::Create => self.limited(self.leases.create(&params, &lease)).await,
            // The version that was seen goes along: who comes second gets a conflict.
            _ => {
                self.limited(self.leases.replace(&self.name, &params, &lease))
                    .await
            }
        }
    }

    /// A call that ends before the leader's time does.
    async fn limited<T>(&self, call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        match tokio::time::timeout(self.timing.renew / 2, call).await {
            Ok(answer) => answer,
            Err(_) => Err(kube::Error::Service("no answer in time".into())),
        }
    }

    async fn release(&self, held: Held) {
        let lease = election::released(&held.lease, Timestamp::now());
        let answer = self
            .limited(
                self.leases
                    .replace(&self.name, &PostParams::default(), &lease),
            )
            .await;
        match answer {
            Ok(_) => tracing::info!(lease = %self.lease(), "gave the lease back"),
            // It runs out by itself.
            Err(error) => {
                tracing::warn!(lease = %self.lease(), %error, "cannot give the lease back");
            }
        }
    }

    fn lost(&self, reason: &str) -> Error {
        self.leadership.end();
        Error::LeaseLost {
            lease: self.lease(),
            reason: reason.to_owned(),
        }
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

/// A lease that is ours.
struct Held {
    lease: Lease,
    until: Instant,
}
