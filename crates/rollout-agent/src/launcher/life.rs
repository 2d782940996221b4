//! What happens to one session, from its claim to its end: pure. Events and the clock come in, commands go out.
//!
//! The first reason to end a session is the one that counts. Ending takes two steps: an abort first runs the hook and lets the agent
//! end by itself; then the agent is cancelled. A session that the shim does not end after that is given up.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    outcome::{Cause, HookReport},
    router::AbortEvent,
};
use crate::wire::{Abort, AbortDone, HookResult, seconds};

/// Time that the shim has, beyond the grace time, to say that a cancelled session ended.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// The router aborts the session.
    Abort(AbortEvent),
    /// The hook of an abort ended.
    HookDone(AbortDone),
    /// The router does not know the session any more.
    Gone,
    /// The router did not answer for longer than the heartbeat limit.
    RouterLost(Abort),
    /// The pod ends; the hook may take so long, and then the shim.
    Stop {
        /// With the hook's time.
        abort: Abort,
        /// Time for the shim to say that a cancelled session ended.
        shim: Duration,
    },
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    /// Run the hook, once per process and abort.
    RunHook(Abort),
    /// Tell the shim to end the session.
    Cancel,
    /// Stop waiting for the shim.
    GiveUp,
}

/// The state of one session.
#[derive(Debug)]
pub(super) struct Life {
    deadline: Option<Instant>,
    grace: Duration,
    cause: Option<Cause>,
    hook: Hook,
    /// When the agent is cancelled at the latest.
    cancel_at: Option<Instant>,
    give_up_at: Option<Instant>,
    give_up_after: Duration,
}

#[derive(Debug)]
enum Hook {
    NotAsked,
    Running {
        abort_id: String,
        drain_until: Option<Instant>,
        without_hook_until: Instant,
    },
    Done(HookReport),
}

impl Life {
    pub(super) fn new(deadline: Option<Instant>, grace: Duration) -> Self {
        Self {
            deadline,
            grace,
            cause: None,
            hook: Hook::NotAsked,
            cancel_at: None,
            give_up_at: None,
            give_up_after: GIVE_UP_AFTER,
        }
    }

    /// Why the launcher ends the session, if it does.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// The report on the hook, once there is one.
    pub(super) fn hook(&self) -> Option<HookReport> {
        match &self.hook {
            Hook::Done(report) => Some(report.clone()),
            Hook::NotAsked | Hook::Running { .. } => None,
        }
    }

    /// Whether a hook was asked for that has not ended.
    pub(super) fn waits_for_hook(&self) -> bool {
        matches!(self.hook, Hook::Running { .. })
    }

    /// When [`Life::on_timer`] is to be called.
    pub(super) fn timer(&self) -> Option<Instant> {
        match self.give_up_at {
            Some(give_up_at) => Some(give_up_at),
            None => [self.deadline, self.cancel_at].into_iter().flatten().min(),
        }
    }

    /// The time of [`Life::timer`] has come.
    pub(super) fn on_timer(&mut self, now: Instant) -> Command {
        if self.give_up_at.is_some() {
            return Command::GiveUp;
        }
        if self.cause.is_none() {
            self.cause = Some(Cause::Deadline);
        }
        self.give_up_at = Some(now + self.grace + self.give_up_after);
        Command::Cancel
    }

    pub(super) fn on(&mut self, event: Event, now: Instant) -> Option<Command> {
        match event {
            Event::Gone => {
                self.cause.get_or_insert(Cause::Gone);
                self.cancel_no_later_than(now);
                None
            }
            Event::HookDone(done) => {
                self.hook_done(done, now);
                None
            }
            Event::Abort(event) => {
                let drain = event.drain_seconds.map(seconds);
                let abort = Abort {
                    abort_id: event.abort_id,
                    timeout_seconds: event.timeout_seconds,
                    args: event.args,
                };
                self.abort(Cause::Aborted, abort, drain, now)
            }
            Event::RouterLost(abort) => {
                self.abort(Cause::RouterLost, abort, Some(Duration::ZERO), now)
            }
            Event::Stop { abort, shim } => {
                self.give_up_after = self.give_up_after.min(shim);
                if let Some(at) = &mut self.give_up_at {
                    *at = (*at).min(now + self.grace + shim);
                }
                self.cancel_no_later_than(now + seconds(abort.timeout_seconds));
                self.abort(Cause::Stopping, abort, Some(Duration::ZERO), now)
            }
        }
    }

    fn abort(
        &mut self,
        cause: Cause,
        abort: Abort,
        drain: Option<Duration>,
        now: Instant,
    ) -> Option<Command> {
        self.cause.get_or_insert(cause);
        if !matches!(self.hook, Hook::NotAsked) {
            // The hook runs or ran: only the time to drain can get shorter.
            if let Some(drain) = drain {
                self.shorten_drain(now + drain);
            }
            return None;
        }
        self.hook = Hook::Running {
            abort_id: abort.abort_id.clone(),
            drain_until: drain.map(|drain| now + drain),
            without_hook_until: now + seconds(abort.timeout_seconds),
        };
        Some(Command::RunHook(abort))
    }

    fn hook_done(&mut self, done: AbortDone, now: Instant) {
        let Hook::Running {
            abort_id,
            drain_until,
            without_hook_until,
        } = &self.hook
        else {
            return;
        };
        if *abort_id != done.abort_id {
            return;
        }
        let until = match (drain_until, done.result) {
            (Some(until), _) => *until,
            (None, HookResult::None) => *without_hook_until,
            (None, _) => now,
        };
        self.hook = Hook::Done(HookReport {
            abort_id: done.abort_id,
            result: done.result,
            error: done.error,
        });
        self.cancel_no_later_than(until.max(now));
    }

    fn shorten_drain(&mut self, until: Instant) {
        match &mut self.hook {
            Hook::Running { drain_until, .. } => {
                *drain_until = Some(drain_until.map_or(until, |old| old.min(until)));
            }
            Hook::Done(_) => self.cancel_no_later_than(until),
            Hook::NotAsked => {}
        }
    }

    fn cancel_no_later_than(&mut self, at: Instant) {
        self.cancel_at = Some(self.cancel_at.map_or(at, |old| old.min(at)));
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
