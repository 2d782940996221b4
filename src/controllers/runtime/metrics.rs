//! The controller's metrics. Labels are bounded: kinds, classes, verbs and codes, never names of objects.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Names, without the endings that the text format adds (`_total`, `_bucket`).
pub mod names {
    /// Reconciles that ended, by kind and result.
    pub const RECONCILES: &str = "rollout_operator_reconciles";
    /// Reconciles that failed, by kind and class of the error.
    pub const RECONCILE_ERRORS: &str = "rollout_operator_reconcile_errors";
    /// Time of a reconcile, by kind.
    pub const RECONCILE_SECONDS: &str = "rollout_operator_reconcile_duration_seconds";
    /// Reconciles that are running, by kind.
    pub const RECONCILES_RUNNING: &str = "rollout_operator_reconciles_running";
    /// Objects that wait for a reconcile, by kind.
    pub const QUEUED: &str = "rollout_operator_queue_length";
    /// Objects that failed when they were last reconciled, by kind.
    pub const FAILING: &str = "rollout_operator_objects_failing";
    /// Applies, by what became of them.
    pub const APPLIES: &str = "rollout_operator_applies";
    /// Calls to the API server, by verb and code.
    pub const API_CALLS: &str = "rollout_operator_api_requests";
    /// Time of a call to the API server until its headers, by verb.
    pub const API_SECONDS: &str = "rollout_operator_api_request_duration_seconds";
    /// Errors of watches, by kind.
    pub const WATCH_ERRORS: &str = "rollout_operator_watch_errors";
    /// Events that were told to people, by whether they were written.
    pub const EVENTS: &str = "rollout_operator_events";
    /// 1: this process leads.
    pub const LEADER: &str = "rollout_operator_leader";
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindResult {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindClass {
    kind: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerbCode {
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

/// Bounds of durations, in seconds: a reconcile should take a tenth of a second, and ends within a minute.
const BOUNDS: [f64; 20] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0,
    10.0, 20.0, 30.0, 60.0,
];

fn seconds() -> Histogram {
    Histogram::new(BOUNDS)
}

/// The metrics of one controller process.
pub struct Metrics {
    registry: Registry,
    reconciles: Family<KindResult, Counter>,
    errors: Family<KindClass, Counter>,
    reconcile_seconds: Family<Kind, Histogram, fn() -> Histogram>,
    running: Family<Kind, Gauge>,
    queued: Family<Kind, Gauge>,
    failing: Family<Kind, Gauge>,
    applies: Family<Outcome, Counter>,
    calls: Family<VerbCode, Counter>,
    call_seconds: Family<Verb, Histogram, fn() -> Histogram>,
    watch_errors: Family<Kind, Counter>,
    events: Family<Outcome, Counter>,
    leader: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            reconciles: Family::default(),
            errors: Family::default(),
            reconcile_seconds: Family::new_with_constructor(seconds),
            running: Family::default(),
            queued: Family::default(),
            failing: Family::default(),
            applies: Family::default(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(seconds),
            watch_errors: Family::default(),
            events: Family::default(),
            leader: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            names::RECONCILES,
            "Reconciles that ended",
            self.reconciles.clone(),
        );
        registry.register(
            names::RECONCILE_ERRORS,
            "Reconciles that failed",
            self.errors.clone(),
        );
        registry.register(
            names::RECONCILE_SECONDS,
            "Time of a reconcile",
            self.reconcile_seconds.clone(),
        );
        registry.register(
            names::RECONCILES_RUNNING,
            "Reconciles that are running",
            self.running.clone(),
        );
        registry.register(
            names::QUEUED,
            "Objects that wait for a reconcile",
            self.queued.clone(),
        );
        registry.register(
            names::FAILING,
            "Objects that failed when they were last reconciled",
            self.failing.clone(),
        );
        registry.register(
            names::APPLIES,
            "Applies by what became of them",
            self.applies.clone(),
        );
        registry.register(
            names::API_CALLS,
            "Calls to the API server",
            self.calls.clone(),
        );
        registry.register(
            names::API_SECONDS,
            "Time of a call to the API server",
            self.call_seconds.clone(),
        );
        registry.register(
            names::WATCH_ERRORS,
            "Errors of watches",
            self.watch_errors.clone(),
        );
        registry.register(
            names::EVENTS,
            "Events that were told to people",
            self.events.clone(),
        );
        registry.register(
            names::LEADER,
            "Whether this process leads",
            self.leader.clone(),
        );
    }

    /// A reconcile begins. It counts as running until the guard is dropped, also by a panic.
    pub fn reconcile_starts(&self, kind: &'static str) -> Running {
        let gauge = self.running.get_or_create(&Kind { kind }).clone();
        gauge.inc();
        Running(gauge)
    }

    /// A reconcile ended; `class` when it failed.
    pub fn reconciled(&self, kind: &'static str, class: Option<&'static str>, took: Duration) {
        let result = if class.is_some() { "error" } else { "ok" };
        self.reconciles
            .get_or_create(&KindResult { kind, result })
            .inc();
        if let Some(class) = class {
            self.errors.get_or_create(&KindClass { kind, class }).inc();
        }
        self.reconcile_seconds
            .get_or_create(&Kind { kind })
            .observe(took.as_secs_f64());
    }

    /// So many objects wait.
    pub fn queued(&self, kind: &'static str, objects: usize) {
        self.queued
            .get_or_create(&Kind { kind })
            .set(count(objects));
    }

    /// So many objects failed when they were last reconciled.
    pub fn failing(&self, kind: &'static str, objects: usize) {
        self.failing
            .get_or_create(&Kind { kind })
            .set(count(objects));
    }

    /// What became of an apply.
    pub fn applied(&self, outcome: &'static str) {
        self.applies.get_or_create(&Outcome { outcome }).inc();
    }

    /// A call to the API server was answered; `code` is `error` when nobody answered.
    pub fn called(&self, verb: &'static str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        self.calls.get_or_create(&VerbCode { verb, code }).inc();
        self.call_seconds
            .get_or_create(&Verb { verb })
            .observe(took.as_secs_f64());
    }

    /// A watch failed.
    pub fn watch_failed(&self, kind: &'static str) {
        self.watch_errors.get_or_create(&Kind { kind }).inc();
    }

    /// An event was told, or could not be.
    pub fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&Outcome { outcome }).inc();
    }

    /// Whether this process leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// As text for a scraper.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

/// A reconcile that is running.
#[derive(Debug)]
pub struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn count(objects: usize) -> i64 {
    i64::try_from(objects).unwrap_or(i64::MAX)
}
