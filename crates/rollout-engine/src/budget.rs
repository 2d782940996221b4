//! The error budget: when failures end the job.
//!
//! An infrastructure failure is counted by *incident*: when an engine dies with a thousand samples in flight, all of them fail of one
//! cause at one time. A failure belongs to the last incident of its cause when its execution was started before that incident
//! was seen; the refills that fail again open the next one. So `infraFailures` of a job bounds incidents, not samples.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::Limits;
use crate::ids::TakeId;

#[derive(Debug, Default)]
pub(crate) struct Budget {
    incidents: u32,
    last_incident: BTreeMap<String, Duration>,
    bad_rows: u32,
    consecutive_failures: u32,
    /// Takes before this one had begun when the last failure in a row was counted: theirs belong to it.
    next_failure_from: TakeId,
    consecutive_setups: u32,
    consecutive_filtered: u64,
    consecutive_skipped: u64,
    consecutive_unusable: u32,
    /// What was last said of a reward function that cannot be called.
    unusable: String,
    /// Agents in a row that cannot be started for their own fault, and what was last said of them.
    unusable_agents: (u32, String),
}

/// What is spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spent {
    /// Too many failures.
    Failures(String),
    /// Too many filtered groups in a row.
    Filtered(String),
}

impl Budget {
    pub(crate) fn infra_failed(&mut self, cause: &str, started: Duration, now: Duration) {
        match self.last_incident.get_mut(cause) {
            Some(seen) if started <= *seen => {}
            Some(seen) => {
                *seen = now;
                self.incidents += 1;
            }
            None => {
                self.last_incident.insert(cause.to_owned(), now);
                self.incidents += 1;
            }
        }
    }

    pub(crate) fn setup_failed(&mut self) {
        self.consecutive_setups += 1;
    }

    pub(crate) fn agent_unusable(&mut self, problem: String) {
        self.setup_failed();
        self.unusable_agents = (self.unusable_agents.0 + 1, problem);
    }

    pub(crate) fn sample_finished(&mut self) {
        self.consecutive_setups = 0;
        self.unusable_agents.0 = 0;
    }

    pub(crate) fn bad_row(&mut self) {
        self.bad_rows += 1;
    }

    /// A row that the job leaves out.
    pub(crate) fn row_skipped(&mut self) {
        self.consecutive_skipped += 1;
    }

    pub(crate) fn row_used(&mut self) {
        self.consecutive_skipped = 0;
    }

    pub(crate) fn reward_unusable(&mut self, problem: String) {
        self.consecutive_unusable += 1;
        self.unusable = problem;
    }

    pub(crate) fn scored(&mut self) {
        self.consecutive_unusable = 0;
    }

    /// A group failed, and may not fail again. Takes that were in work together fail of one cause, so they count once: `next_take`
    /// is the first one that can fail after this one.
    pub(crate) fn group_failed(&mut self, take: TakeId, next_take: TakeId) {
        if take >= self.next_failure_from {
            self.next_failure_from = next_take;
            self.consecutive_failures += 1;
        }
    }

    /// A group failed of what it is: each of them says something about the job.
    pub(crate) fn group_unusable(&mut self) {
        self.consecutive_failures += 1;
    }

    pub(crate) fn failures_in_a_row(&self) -> u32 {
        self.consecutive_failures
    }

    pub(crate) fn group_filtered(&mut self) {
        self.consecutive_failures = 0;
        self.consecutive_filtered += 1;
    }

    pub(crate) fn group_passed(&mut self) {
        self.consecutive_failures = 0;
        self.consecutive_filtered = 0;
    }

    /// `rows` is one epoch of the data set.
    pub(crate) fn spent(&self, limits: &Limits, rows: u64) -> Option<Spent> {
        let causes = || {
            self.last_incident
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ")
        };
        if self.incidents > limits.infra_incidents {
            return Some(Spent::Failures(format!(
                "more than {} infrastructure incidents ({})",
                limits.infra_incidents,
                causes()
            )));
        }
        if self.unusable_agents.0 >= limits.unusable_agents {
            return Some(Spent::Failures(self.unusable_agents.1.clone()));
        }
        if self.consecutive_unusable >= limits.unusable_rewards {
            return Some(Spent::Failures(format!(
                "the reward function cannot be used: {}",
                self.unusable
            )));
        }
        if self.consecutive_skipped >= rows.max(1) {
            return Some(Spent::Filtered(
                "every row of the data set was left out".to_owned(),
            ));
        }
        if self.bad_rows > limits.bad_rows {
            return Some(Spent::Failures(format!(
                "more than {} bad rows in the data set",
                limits.bad_rows
            )));
        }
        if self.consecutive_failures >= limits.consecutive_group_failures {
            return Some(Spent::Failures(format!(
                "{} groups in a row failed",
                self.consecutive_failures
            )));
        }
        if self.consecutive_setups >= limits.consecutive_group_failures {
            return Some(Spent::Failures(format!(
                "{} samples in a row could not be started",
                self.consecutive_setups
            )));
        }
        if self.consecutive_filtered >= limits.consecutive_filtered {
            return Some(Spent::Filtered(format!(
                "{} groups in a row did not pass the filter",
                self.consecutive_filtered
            )));
        }
        None
    }
}
