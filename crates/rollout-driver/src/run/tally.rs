//! Counters of a run, for the status and the manifest.

use std::collections::BTreeMap;

use rollout_engine::SampleEnd;
use rollout_session::{Sample, with_short_ids};

use crate::generate::{Generated, SessionTally};

/// Different failures that are told apart: fifteen by their reason, and the rest together.
const FAILURES: usize = 16;

/// The rest.
const OTHER: &str = "other";

/// Longest text of one.
const FAILURE_TEXT: usize = 300;

/// A failure and how often it happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) count: u64,
}

/// The most frequent failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Worst<'a> {
    pub(crate) reason: &'a str,
    /// Of its last message: in a traceback that is the error itself.
    pub(crate) last_line: &'a str,
}

/// Counters of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    pub(crate) completed: u64,
    pub(crate) truncated: u64,
    pub(crate) aborted: u64,
    pub(crate) agent_failed: u64,
    pub(crate) infra_failed: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) reward_sum: f64,
    pub(crate) reward_count: u64,
    pub(crate) failures: BTreeMap<String, Failure>,
}

impl Counters {
    pub(crate) fn generated(&mut self, generated: &Generated) {
        if let SampleEnd::Finished { tokens, .. } | SampleEnd::Aborted { tokens } = generated.end {
            self.generated_tokens += tokens;
        }
        for sample in &generated.samples {
            let cached = sample.prefix_cache_info.cached_tokens;
            self.cached_tokens += u64::try_from(cached).unwrap_or(0);
        }
        match generated.session {
            Some(SessionTally::Completed) => self.completed += 1,
            Some(SessionTally::Truncated) => self.truncated += 1,
            Some(SessionTally::Aborted) => self.aborted += 1,
            Some(SessionTally::AgentFailed) => {
                self.agent_failed += 1;
                self.failed(
                    "agent_failed",
                    generated.problem.as_deref().unwrap_or_default(),
                );
            }
            Some(SessionTally::InfraFailed) => self.infra_failed += 1,
            None => {}
        }
        let reason = match &generated.end {
            SampleEnd::Infra { cause }
            | SampleEnd::Unserved { cause }
            | SampleEnd::SharedDeath { cause }
            | SampleEnd::OutOfMemory { cause }
            | SampleEnd::Setup { cause }
            | SampleEnd::Unusable { cause, .. } => cause.as_str(),
            SampleEnd::Rejected { reason } => reason.as_str(),
            SampleEnd::Finished { .. } | SampleEnd::Aborted { .. } => return,
        };
        self.failed(reason, generated.problem.as_deref().unwrap_or_default());
    }

    pub(crate) fn failed(&mut self, reason: &str, message: &str) {
        let is_known = self.failures.contains_key(reason);
        let (reason, message) = if is_known || self.failures.len() < FAILURES - 1 {
            (reason, tail(message))
        } else {
            (OTHER, tail(&format!("{reason}: {message}")))
        };
        let failure = self.failures.entry(reason.to_owned()).or_default();
        failure.count += 1;
        failure.message = message;
    }

    /// All failures, the most frequent one first.
    pub(crate) fn by_frequency(&self) -> Vec<(&str, &Failure)> {
        let mut failures: Vec<_> = self
            .failures
            .iter()
            .map(|(reason, failure)| (reason.as_str(), failure))
            .collect();
        failures.sort_by_key(|(_, failure)| std::cmp::Reverse(failure.count));
        failures
    }

    /// The most frequent failure.
    pub(crate) fn worst(&self) -> Option<Worst<'_>> {
        let (reason, failure) = *self.by_frequency().first()?;
        let last_line = failure.message.trim().lines().next_back().unwrap_or("");
        Some(Worst { reason, last_line })
    }

    pub(crate) fn kept<'a>(&mut self, samples: impl Iterator<Item = &'a Sample>, key: &str) {
        for reward in samples.filter_map(|sample| sample.scalar_reward(key)) {
            self.reward_sum += reward;
            self.reward_count += 1;
        }
    }

    /// The mean reward of kept samples.
    pub(crate) fn reward_mean(&self) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a job has far fewer than 2^52 samples"
        )]
        let count = self.reward_count as f64;
        (self.reward_count > 0).then(|| self.reward_sum / count)
    }
}

/// The end of a text: of a traceback that is the error itself. It is shown to people, so it has no ids that open sessions.
fn tail(text: &str) -> String {
    let text = with_short_ids(text.trim());
    let skipped = text.chars().count().saturating_sub(FAILURE_TEXT);
    if skipped == 0 {
        return text.into_owned();
    }
    let end: String = text.chars().skip(skipped).collect();
    format!("...{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_counted_and_the_list_is_bounded() {
        let mut counters = Counters::default();
        for n in 0..40 {
            counters.failed(&format!("reason_{n:02}"), "it broke");
        }
        counters.failed("reason_03", "again");
        let failures = counters.by_frequency();
        assert_eq!(failures.len(), 16);
        let total: u64 = failures.iter().map(|(_, failure)| failure.count).sum();
        assert_eq!(total, 41);
        let (reason, rest) = failures[0];
        assert_eq!((reason, rest.count), ("other", 25));
        assert_eq!(rest.message, "reason_39: it broke");
        let (reason, known) = failures[1];
        assert_eq!((reason, known.count), ("reason_03", 2));
        assert_eq!(known.message, "again");
    }

    #[test]
    fn of_a_long_text_the_end_stays() {
        let mut counters = Counters::default();
        counters.failed("raised", &format!("{}ValueError: no", "x".repeat(1000)));
        let (_, failure) = counters.by_frequency()[0];
        assert!(failure.message.ends_with("ValueError: no"));
        assert!(failure.message.chars().count() <= FAILURE_TEXT + 3);
    }

    #[test]
    fn a_failure_that_is_shown_opens_no_session() {
        let mut counters = Counters::default();
        let id = "1a2b3c4d5e6f708192a3b4c5d6e7f809";
        counters.failed(
            "timed_out",
            &format!("no reply from http://r/sessions/{id}/samples"),
        );
        let (_, failure) = counters.by_frequency()[0];
        assert_eq!(
            failure.message,
            "no reply from http://r/sessions/1a2b3c4d5e6f/samples"
        );
    }
}
