//! Counters and gauges. The names are part of the product: a snapshot test holds them.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use rollout_session::Generation;

use crate::engines::{Engines, LookupEnd};
use crate::route::Forward;
use crate::session::{Outcome, Sessions};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForwardLabels {
    path: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EngineLabel {
    engine: String,
}

/// The metrics of a router.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    turns: Family<StatusLabel, Counter>,
    forwarded: Family<ForwardLabels, Counter>,
    refused: Family<CodeLabel, Counter>,
    tokens: Family<KindLabel, Counter>,
    outcomes: Family<OutcomeLabel, Counter>,
    clients_gone: Counter,
    turn_seconds: Histogram,
    fence_seconds: Histogram,
    sessions: Family<StateLabel, Gauge>,
    record_bytes: Gauge,
    engine_healthy: Family<EngineLabel, Gauge>,
    engine_in_flight: Family<EngineLabel, Gauge>,
    engine_draining: Family<EngineLabel, Gauge>,
    engine_lookups: LookupCounter,
}

/// Counts lookups of the engines' service. Clones are the same counter.
#[derive(Debug, Clone, Default)]
pub(crate) struct LookupCounter(Family<ResultLabel, Counter>);

impl LookupCounter {
    pub(crate) fn count(&self, end: LookupEnd) {
        let result = end.label();
        self.0.get_or_create(&ResultLabel { result }).inc();
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("rollout_router")),
            turns: Family::default(),
            forwarded: Family::default(),
            refused: Family::default(),
            tokens: Family::default(),
            outcomes: Family::default(),
            clients_gone: Counter::default(),
            turn_seconds: Histogram::new(exponential_buckets(0.01, 2.0, 18)),
            fence_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            sessions: Family::default(),
            record_bytes: Gauge::default(),
            engine_healthy: Family::default(),
            engine_in_flight: Family::default(),
            engine_draining: Family::default(),
            engine_lookups: LookupCounter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = self.registry.lock();
        let registry = &mut *registry;
        registry.register(
            "turns",
            "Turns of sessions by the status of their answer",
            self.turns.clone(),
        );
        registry.register(
            "forwarded_requests",
            "Requests without a session by path and status",
            self.forwarded.clone(),
        );
        registry.register(
            "refused_requests",
            "Requests that were refused or failed, by code",
            self.refused.clone(),
        );
        registry.register(
            "tokens",
            "Tokens of recorded turns: prompt, cached, output",
            self.tokens.clone(),
        );
        registry.register(
            "session_outcomes",
            "Sessions that ended, by outcome",
            self.outcomes.clone(),
        );
        registry.register(
            "clients_gone",
            "Requests whose clients went away before the answer",
            self.clients_gone.clone(),
        );
        registry.register_with_unit(
            "turn_duration",
            "Time from a turn's start to its answer",
            Unit::Seconds,
            self.turn_seconds.clone(),
        );
        registry.register_with_unit(
            "fence_duration",
            "Time from a fence to its report",
            Unit::Seconds,
            self.fence_seconds.clone(),
        );
        registry.register("sessions", "Live sessions by state", self.sessions.clone());
        registry.register_with_unit(
            "records",
            "Size of all records",
            Unit::Bytes,
            self.record_bytes.clone(),
        );
        registry.register(
            "engine_healthy",
            "1 if the engine gets work",
            self.engine_healthy.clone(),
        );
        registry.register(
            "engine_in_flight",
            "Requests that are at the engine",
            self.engine_in_flight.clone(),
        );
        registry.register(
            "engine_draining",
            "1 if the engine has left its service and ends its work",
            self.engine_draining.clone(),
        );
        registry.register(
            "engine_lookups",
            "Lookups of the engines' service, by result",
            self.engine_lookups.0.clone(),
        );
    }

    pub(crate) fn turn(&self, took: Duration, status: StatusCode) {
        let status = status.as_u16();
        self.turns.get_or_create(&StatusLabel { status }).inc();
        self.turn_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn forwarded(&self, route: Forward, status: StatusCode) {
        let labels = ForwardLabels {
            path: route.path(),
            status: status.as_u16(),
        };
        self.forwarded.get_or_create(&labels).inc();
    }

    pub(crate) fn refused(&self, code: &'static str) {
        self.refused.get_or_create(&CodeLabel { code }).inc();
    }

    pub(crate) fn client_gone(&self) {
        self.clients_gone.inc();
    }

    pub(crate) fn outcome(&self, outcome: Outcome) {
        let outcome = outcome.label();
        self.outcomes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(crate) fn fence(&self, took: Duration) {
        self.fence_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn tokens(&self, generation: &Generation) {
        let cached = u64::try_from(generation.cached_tokens).unwrap_or(0);
        let counts = [
            ("prompt", generation.prompt_ids.len() as u64),
            ("cached", cached),
            ("output", generation.output_ids.len() as u64),
        ];
        for (kind, count) in counts {
            self.tokens.get_or_create(&KindLabel { kind }).inc_by(count);
        }
    }

    /// The exposition, with gauges brought up to date.
    pub(crate) fn text(
        &self,
        sessions: &Sessions,
        engines: &Engines,
    ) -> Result<String, fmt::Error> {
        self.update(sessions, engines);
        let mut exposition = String::new();
        text::encode(&mut exposition, &self.registry.lock())?;
        Ok(exposition)
    }

    fn update(&self, sessions: &Sessions, engines: &Engines) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for state in ["open", "queued", "assigned", "ended"] {
            self.sessions.get_or_create(&StateLabel { state }).set(0);
        }
        for session in sessions.all() {
            let state = session.state.lock().phase.label();
            self.sessions.get_or_create(&StateLabel { state }).inc();
        }
        self.record_bytes.set(gauge(sessions.bytes()));
        let of_engines = [
            &self.engine_healthy,
            &self.engine_in_flight,
            &self.engine_draining,
        ];
        // An engine that is forgotten has no figures.
        for family in of_engines {
            family.clear();
        }
        for engine in engines.all().iter() {
            let label = EngineLabel {
                engine: engine.url().to_owned(),
            };
            let figures = [
                i64::from(engine.is_healthy()),
                gauge(engine.in_flight()),
                i64::from(engine.is_draining()),
            ];
            for (family, figure) in of_engines.into_iter().zip(figures) {
                family.get_or_create(&label).set(figure);
            }
        }
    }

    pub(crate) fn engine_lookups(&self) -> LookupCounter {
        self.engine_lookups.clone()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}
