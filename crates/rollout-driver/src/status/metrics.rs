//! The driver's metrics, as text for a scraper: counters of the run, and the figures of the last finished step.
//!
//! Counters of takes are the ledger's and go on over restarts; the others count this process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use rollout_engine::{Progress, Tally, TeardownSummary};
use serde_json::{Map, Value};

use super::names;
use crate::run::Counters;

type Figure = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RewardLabel {
    reward: String,
}

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
    takes: Family<StateLabel, Counter>,
    takes_open: Gauge,
    samples: Family<OutcomeLabel, Counter>,
    samples_in_flight: Gauge,
    samples_written: Gauge,
    sessions: Gauge,
    tokens: Family<KindLabel, Counter>,
    failures: Family<ReasonLabel, Counter>,
    reward: Histogram,
    queue: Histogram,
    teardown: Figure,
    teardown_drain: Figure,
    teardown_aborted: Gauge,
    step: Vec<(&'static str, Figure)>,
    zero_std: Family<RewardLabel, Gauge>,
    filter_drop: Family<ReasonLabel, Gauge>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            takes: Family::default(),
            takes_open: Gauge::default(),
            samples: Family::default(),
            samples_in_flight: Gauge::default(),
            samples_written: Gauge::default(),
            sessions: Gauge::default(),
            tokens: Family::default(),
            failures: Family::default(),
            reward: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
            queue: Histogram::new(exponential_buckets(0.001, 2.0, 22)),
            teardown: Figure::default(),
            teardown_drain: Figure::default(),
            teardown_aborted: Gauge::default(),
            step: names::STEP
                .map(|(miles, _)| (miles, Figure::default()))
                .to_vec(),
            zero_std: Family::default(),
            filter_drop: Family::default(),
        };
        metrics.register_run();
        metrics.register_step();
        metrics.step_written(&Map::new());
        metrics
    }

    fn register_run(&self) {
        let mut registry = self.registry.lock();
        let registry = &mut *registry;
        let takes = "Takes of prompt groups that ended, by state";
        registry.register(names::TAKES, takes, self.takes.clone());
        let open = "Takes that have not ended";
        registry.register(names::TAKES_OPEN, open, self.takes_open.clone());
        let samples = "Sessions or requests that ended, by outcome";
        registry.register(names::SAMPLES, samples, self.samples.clone());
        let in_flight = "Sessions or requests under way";
        registry.register(
            names::SAMPLES_IN_FLIGHT,
            in_flight,
            self.samples_in_flight.clone(),
        );
        let written = "Samples in the output's finished steps";
        registry.register(
            names::SAMPLES_WRITTEN,
            written,
            self.samples_written.clone(),
        );
        let sessions = "Sessions that are open at the router";
        registry.register(names::SESSIONS, sessions, self.sessions.clone());
        let tokens =
            "Tokens that were generated, of these discarded, and prompt tokens from the cache";
        registry.register(names::TOKENS, tokens, self.tokens.clone());
        let failures = "Failures by reason";
        registry.register(names::FAILURES, failures, self.failures.clone());
        let mut seconds = |name: &str, help: &str, histogram: &Histogram| {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        };
        seconds(
            names::REWARD,
            "Time from asking for a reward to the answer",
            &self.reward,
        );
        seconds(
            names::QUEUE,
            "Time from a loaded prompt to the start of its sample",
            &self.queue,
        );
        let mut figure = |name: &str, help: &str, gauge: &Figure| {
            registry.register_with_unit(name, help, Unit::Seconds, gauge.clone());
        };
        figure(
            names::TEARDOWN,
            "How long the last teardown took",
            &self.teardown,
        );
        figure(
            names::TEARDOWN_DRAIN,
            "How long the work in flight took to end in the last teardown",
            &self.teardown_drain,
        );
        let aborted = "Requests that the last teardown aborted";
        registry.register(
            names::TEARDOWN_ABORTED,
            aborted,
            self.teardown_aborted.clone(),
        );
    }

    fn register_step(&self) {
        let mut registry = self.registry.lock();
        for ((miles, ours), (_, gauge)) in names::STEP.into_iter().zip(&self.step) {
            let help = format!("{miles} of the last finished step");
            registry.register(ours, help, gauge.clone());
        }
        let zero_std = "Groups of the last finished step whose rewards are all this one";
        registry.register(names::ZERO_STD_COUNT, zero_std, self.zero_std.clone());
        let dropped = "Groups that were dropped in the last finished step, by reason";
        registry.register(names::FILTER_DROP, dropped, self.filter_drop.clone());
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
        let sum = |by_reason: &std::collections::BTreeMap<String, u64>| by_reason.values().sum();
        for (state, count) in [
            ("kept", takes.kept),
            ("filtered", sum(&takes.filtered)),
            ("recycled", sum(&takes.recycled)),
            ("failed", sum(&takes.failed)),
            ("lost", sum(&takes.lost)),
        ] {
            set(&self.takes.get_or_create(&StateLabel { state }), count);
        }
        self.takes_open
            .set(signed(takes.taken.saturating_sub(takes.ended())));
        for (outcome, count) in [
            ("completed", counters.completed),
            ("truncated", counters.truncated),
            ("aborted", counters.aborted),
            ("agent_failed", counters.agent_failed),
            ("infra_failed", counters.infra_failed),
        ] {
            set(
                &self.samples.get_or_create(&OutcomeLabel { outcome }),
                count,
            );
        }
        self.samples_in_flight
            .set(signed(progress.samples_in_flight));
        self.samples_written.set(signed(written));
        self.sessions.set(signed(sessions));
        for (kind, count) in [
            ("generated", counters.generated_tokens),
            ("discarded", progress.discarded_tokens),
            ("cached", counters.cached_tokens),
        ] {
            set(&self.tokens.get_or_create(&KindLabel { kind }), count);
        }
        for (reason, failure) in &counters.failures {
            let reason = reason.clone();
            set(
                &self.failures.get_or_create(&ReasonLabel { reason }),
                failure.count,
            );
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
        self.zero_std.clear();
        self.filter_drop.clear();
        for (name, value) in metrics {
            let count = value.as_i64().unwrap_or_default();
            if let Some(reward) = name.strip_prefix(names::MILES_ZERO_STD_COUNT) {
                let reward = reward.to_owned();
                self.zero_std
                    .get_or_create(&RewardLabel { reward })
                    .set(count);
            } else if let Some(reason) = name.strip_prefix(names::MILES_FILTER_DROP) {
                let reason = reason.to_owned();
                self.filter_drop
                    .get_or_create(&ReasonLabel { reason })
                    .set(count);
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

/// These counters are counted elsewhere; none of them falls.
fn set(counter: &Counter, count: u64) {
    counter.inner().fetch_max(count, Ordering::Relaxed);
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use rollout_engine::TakeEnd;
    use serde_json::json;

    use super::*;

    /// The metrics of a job in its second step.
    fn shown() -> Metrics {
        let metrics = Metrics::new();
        let mut takes = Tally {
            taken: 9,
            ..Tally::default()
        };
        takes.count(&TakeEnd::Kept, 4);
        takes.count(&TakeEnd::Filtered("zero_std_0.0".into()), 2);
        takes.count(&TakeEnd::Failed("bad_row".into()), 1);
        let mut counters = Counters {
            completed: 8,
            generated_tokens: 640,
            ..Counters::default()
        };
        counters.failed("engine_failed", "silent");
        let progress = Progress {
            samples_in_flight: 3,
            discarded_tokens: 40,
            ..Progress::default()
        };
        let teardown = TeardownSummary {
            millis: 1500,
            drain_millis: 250,
            aborted_requests: 7,
            ..TeardownSummary::default()
        };
        metrics.show(Numbers {
            progress: &progress,
            takes: &takes,
            counters: &counters,
            teardown: &teardown,
            sessions: 3,
            written: 16,
        });
        let step = json!({
            "rollout/step": 1, "rollout/response_len/mean": 3.5, "rollout/raw_reward": 0.5,
            "rollout/zero_std/count_1.0": 2, "rollout/dynamic_filter/drop_zero_std_0.0": 2, "perf/rollout_time": 12.25,
        });
        metrics.step_written(step.as_object().expect("an object"));
        metrics.rewarded(Duration::from_millis(3));
        metrics.queued(Duration::from_millis(20));
        metrics
    }

    #[test]
    fn the_names_are_part_of_the_product() {
        let text = shown().text().expect("text");
        let mut lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("_bucket{") && !line.starts_with("# HELP"))
            .filter(|line| !line.ends_with(" NaN"))
            .collect();
        // Series of one name come in any order.
        lines.sort_unstable();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        # EOF
        # TYPE rollout_avg_cached_tokens_per_sample gauge
        # TYPE rollout_dynamic_filter_drop gauge
        # TYPE rollout_failures counter
        # TYPE rollout_perf_rollout_time gauge
        # TYPE rollout_prefix_cache_hit_rate gauge
        # TYPE rollout_queue_duration_seconds histogram
        # TYPE rollout_raw_reward gauge
        # TYPE rollout_response_len_max gauge
        # TYPE rollout_response_len_mean gauge
        # TYPE rollout_response_len_median gauge
        # TYPE rollout_response_len_min gauge
        # TYPE rollout_reward_duration_seconds histogram
        # TYPE rollout_samples counter
        # TYPE rollout_samples_in_flight gauge
        # TYPE rollout_samples_written gauge
        # TYPE rollout_sessions gauge
        # TYPE rollout_spec_accept_length gauge
        # TYPE rollout_spec_accept_rate gauge
        # TYPE rollout_step gauge
        # TYPE rollout_takes counter
        # TYPE rollout_takes_open gauge
        # TYPE rollout_teardown_aborted_requests gauge
        # TYPE rollout_teardown_drain_duration_seconds gauge
        # TYPE rollout_teardown_duration_seconds gauge
        # TYPE rollout_tokens counter
        # TYPE rollout_truncated_ratio gauge
        # TYPE rollout_weight_version_max gauge
        # TYPE rollout_weight_version_mean gauge
        # TYPE rollout_weight_version_median gauge
        # TYPE rollout_weight_version_min gauge
        # TYPE rollout_weight_version_mixed_version_ratio gauge
        # TYPE rollout_zero_std_all_one_percentage gauge
        # TYPE rollout_zero_std_all_zero_percentage gauge
        # TYPE rollout_zero_std_count gauge
        # UNIT rollout_queue_duration_seconds seconds
        # UNIT rollout_reward_duration_seconds seconds
        # UNIT rollout_teardown_drain_duration_seconds seconds
        # UNIT rollout_teardown_duration_seconds seconds
        rollout_dynamic_filter_drop{reason="zero_std_0.0"} 2
        rollout_failures_total{reason="engine_failed"} 1
        rollout_perf_rollout_time 12.25
        rollout_queue_duration_seconds_count 1
        rollout_queue_duration_seconds_sum 0.02
        rollout_raw_reward 0.5
        rollout_response_len_mean 3.5
        rollout_reward_duration_seconds_count 1
        rollout_reward_duration_seconds_sum 0.003
        rollout_samples_in_flight 3
        rollout_samples_total{outcome="aborted"} 0
        rollout_samples_total{outcome="agent_failed"} 0
        rollout_samples_total{outcome="completed"} 8
        rollout_samples_total{outcome="infra_failed"} 0
        rollout_samples_total{outcome="truncated"} 0
        rollout_samples_written 16
        rollout_sessions 3
        rollout_step 1.0
        rollout_takes_open 2
        rollout_takes_total{state="failed"} 1
        rollout_takes_total{state="filtered"} 2
        rollout_takes_total{state="kept"} 4
        rollout_takes_total{state="lost"} 0
        rollout_takes_total{state="recycled"} 0
        rollout_teardown_aborted_requests 7
        rollout_teardown_drain_duration_seconds 0.25
        rollout_teardown_duration_seconds 1.5
        rollout_tokens_total{kind="cached"} 0
        rollout_tokens_total{kind="discarded"} 40
        rollout_tokens_total{kind="generated"} 640
        rollout_zero_std_count{reward="1.0"} 2
        "#);
    }

    #[test]
    fn every_metric_of_a_step_that_has_a_fixed_name_is_one_of_miles() {
        for (miles, ours) in names::STEP {
            let expected = miles.replace('/', "_");
            let expected = if expected.starts_with("rollout_") {
                expected
            } else {
                format!("rollout_{expected}")
            };
            assert_eq!(ours, expected);
        }
    }
}
