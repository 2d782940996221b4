//! An outage: what is started is not served, one time after the other.
//!
//! Executions that were under way together and found no engine are one *round*, however many they are. With every round the pause before
//! anything is started again doubles; a sample that was generated ends the outage, and the next one begins with a short pause.
//! So an engine that restarts for minutes costs a few rounds, and one that stays away uses up its rounds in bounded time.

use std::time::Duration;

use crate::config::Limits;

/// How much longer than that before a first refill the pause after a first round is, in doublings: what failed at once is seldom back so soon.
const HEAD_START: u32 = 2;

#[derive(Debug, Default)]
pub(crate) struct Outage {
    rounds: u32,
    /// When the first of them was seen.
    since: Duration,
    /// Executions with a lower number had been started when the last round was counted: they belong to it.
    next_round_from: u64,
    closed_until: Option<Duration>,
}

impl Outage {
    /// Execution number `execution` was not served; `executions` were started so far.
    pub(crate) fn unserved(
        &mut self,
        execution: u64,
        executions: u64,
        limits: &Limits,
        now: Duration,
    ) {
        if execution >= self.next_round_from {
            self.round(executions, limits, now);
        }
    }

    /// Everything that was started has failed of the machinery once more.
    pub(crate) fn round(&mut self, executions: u64, limits: &Limits, now: Duration) {
        if self.rounds == 0 {
            self.since = now;
        }
        self.closed_until = Some(now + limits.backoff(self.rounds + HEAD_START));
        self.rounds += 1;
        self.next_round_from = executions;
    }

    /// An engine generated something.
    pub(crate) fn served(&mut self) {
        self.rounds = 0;
        self.closed_until = None;
    }

    /// Whether something may be started at `now`.
    pub(crate) fn admits(&mut self, now: Duration) -> bool {
        self.closed_until = self.closed_until.filter(|until| now < *until);
        self.closed_until.is_none()
    }

    /// Until when nothing is started.
    pub(crate) fn closed_until(&self) -> Option<Duration> {
        self.closed_until
    }

    /// What to say when the rounds are used up.
    pub(crate) fn spent(&self, limits: &Limits, now: Duration) -> Option<String> {
        (self.rounds >= limits.consecutive_group_failures).then(|| {
            format!(
                "no engine served anything {} times in a row, for {} s",
                self.rounds,
                now.saturating_sub(self.since).as_secs()
            )
        })
    }
}
