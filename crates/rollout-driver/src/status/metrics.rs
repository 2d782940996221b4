//! The driver's metrics, as text for a scraper: counters of the run, and the figures of the last finished step.
//!
//! Counters of takes are the ledger's and go on over restarts; the others count this process.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rollout_engine::{Progress, Tally, TeardownSummary};
use serde_json::{Map, Value};

use super::names;
use super::table::{ByLabel, Figure, Table};
use crate::run::Counters;

/// What a run shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers<'a> {
    pub(crate) progress: &'a Progress,
    /// All takes of the job.
    pub(crate) takes: &'a Tally,
    pub(crate) counters: &'a Counters,
    pub(crate) teardown: &'a TeardownSummary,
    /// Sessions that are open at the router.
    pub(crate) sessions: u64,
    /// Samples of the output's finished steps.
    pub(crate) written: u64,
}

/// The metrics of one driver.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    takes: ByLabel<Counter>,
    takes_open: Gauge,
    samples: ByLabel<Counter>,
    samples_in_flight: Gauge,
    samples_written: Gauge,
    sessions: Gauge,
    tokens: ByLabel<Counter>,
    failures: ByLabel<Counter>,
    reward: Histogram,
    queue: Histogram,
    teardown: Figure,
    teardown_drain: Figure,
    teardown_aborted: Gauge,
    /// By Miles's name.
    step: Vec<(&'static str, Figure)>,
    zero_std: ByLabel<Gauge>,
    filter_drop: ByLabel<Gauge>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut table = Table::default();
        // In the order in which they are shown.
        let metrics = Self {
            takes: table.by_label(
                names::TAKES,
                "state",
                "Takes of prompt groups that ended, by state",
            ),
            takes_open: table.one(names::TAKES_OPEN, "Takes that have not ended"),
            samples: table.by_label(
                names::SAMPLES,
                "outcome",
                "Sessions or requests that ended, by outcome",
            ),
            samples_in_flight: table
                .one(names::SAMPLES_IN_FLIGHT, "Sessions or requests under way"),
            samples_written: table.one(
                names::SAMPLES_WRITTEN,
                "Samples in the output's finished steps",
            ),
            sessions: table.one(names::SESSIONS, "Sessions that are open at the router"),
            tokens: table.by_label(
                names::TOKENS,
                "kind",
                "Tokens that were generated, of these discarded, and prompt tokens from the cache",
            ),
            failures: table.by_label(names::FAILURES, "reason", "Failures by reason"),
            reward: table.durations(
                names::REWARD,
                18,
                "Time from asking for a reward to the answer",
            ),
            queue: table.durations(
                names::QUEUE,
                22,
                "Time from a loaded prompt to the start of its sample",
            ),
            teardown: table.duration(names::TEARDOWN, "How long the last teardown took"),
            teardown_drain: table.duration(
                names::TEARDOWN_DRAIN,
                "How long the work in flight took to end in the last teardown",
            ),
            teardown_aborted: table.one(
                names::TEARDOWN_ABORTED,
                "Requests that the last teardown aborted",
            ),
            step: names::STEP
                .map(|(miles, ours)| {
                    let help = format!("{miles} of the last finished step");
                    (miles, table.one(ours, &help))
                })
                .to_vec(),
            zero_std: table.by_label(
                names::ZERO_STD_COUNT,
                "reward",
                "Groups of the last finished step whose rewards are all this one",
            ),
            filter_drop: table.by_label(
                names::FILTER_DROP,
                "reason",
                "Groups that were dropped in the last finished step, by reason",
            ),
            registry: Mutex::new(table.registry()),
        };
        metrics.step_written(&Map::new());
        metrics
    }

    /// Brings everything but the step's figures up to date.
    pub(crate) fn show(&self, numbers: Numbers<'_>) {
        let Numbers {
            progress,
            takes,
            counters,
            teardown,
            sessions,
            written,
        } = numbers;
        let sum = |by_reason: &BTreeMap<String, u64>| by_reason.values().sum();
        self.takes.show("kept", takes.kept);
        self.takes.show("filtered", sum(&takes.filtered));
        self.takes.show("recycled", sum(&takes.recycled));
        self.takes.show("failed", sum(&takes.failed));
        self.takes.show("lost", sum(&takes.lost));
        let open = takes.taken.saturating_sub(takes.ended());
        self.takes_open.set(signed(open));
        self.samples.show("completed", counters.completed);
        self.samples.show("truncated", counters.truncated);
        self.samples.show("aborted", counters.aborted);
        self.samples.show("agent_failed", counters.agent_failed);
        self.samples.show("infra_failed", counters.infra_failed);
        self.samples_in_flight
            .set(signed(progress.samples_in_flight));
        self.samples_written.set(signed(written));
        self.sessions.set(signed(sessions));
        self.tokens.show("generated", counters.generated_tokens);
        self.tokens.show("discarded", progress.discarded_tokens);
        self.tokens.show("cached", counters.cached_tokens);
        for (reason, failure) in &counters.failures {
            self.failures.show(reason, failure.count);
        }
        self.teardown.set(seconds(teardown.millis));
        self.teardown_drain.set(seconds(teardown.drain_millis));
        self.teardown_aborted.set(signed(teardown.aborted_requests));
    }

    /// A step is in the output, with these metrics in its manifest.
    pub(crate) fn step_written(&self, metrics: &Map<String, Value>) {
        for (miles, gauge) in &self.step {
            // Rewards or speculation may be missing from a step: then there is no figure.
            let figure = metrics.get(*miles).and_then(Value::as_f64);
            gauge.set(figure.unwrap_or(f64::NAN));
        }
        for (prefix, gauges) in [
            (names::MILES_ZERO_STD_COUNT, &self.zero_std),
            (names::MILES_FILTER_DROP, &self.filter_drop),
        ] {
            gauges.clear();
            for (name, value) in metrics {
                if let Some(label) = name.strip_prefix(prefix) {
                    gauges.set(label, value.as_i64().unwrap_or_default());
                }
            }
        }
    }

    pub(crate) fn rewarded(&self, took: Duration) {
        self.reward.observe(took.as_secs_f64());
    }

    pub(crate) fn queued(&self, waited: Duration) {
        self.queue.observe(waited.as_secs_f64());
    }

    /// The exposition.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut exposition = String::new();
        text::encode(&mut exposition, &self.registry.lock())?;
        Ok(exposition)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

#[cfg(test)]
mod tests;
