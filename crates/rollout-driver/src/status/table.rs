//! The table that metrics are registered in: a metric is one row, with its name, its label where it has one, and its help.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};

/// A gauge that is no whole number.
pub(super) type Figure = Gauge<f64, AtomicU64>;

/// The least duration that has a bucket of its own; the next buckets double.
const LEAST_SECONDS: f64 = 0.001;

/// Rows, in the order in which they are shown.
#[derive(Default)]
pub(super) struct Table(Registry);

impl Table {
    /// A metric without a label.
    pub(super) fn one<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    /// A metric with a value for each value of a label.
    pub(super) fn by_label<M>(&mut self, name: &str, label: &'static str, help: &str) -> ByLabel<M>
    where
        M: Default,
        Family<Label, M>: Metric,
    {
        let family = Family::default();
        self.0.register(name, help, Family::clone(&family));
        ByLabel { label, family }
    }

    /// A duration in seconds.
    pub(super) fn duration(&mut self, name: &str, help: &str) -> Figure {
        let figure = Figure::default();
        let unit = Unit::Seconds;
        self.0.register_with_unit(name, help, unit, figure.clone());
        figure
    }

    /// Durations in seconds, in so many buckets.
    pub(super) fn durations(&mut self, name: &str, buckets: u16, help: &str) -> Histogram {
        let histogram = Histogram::new(exponential_buckets(LEAST_SECONDS, 2.0, buckets));
        let unit = Unit::Seconds;
        self.0
            .register_with_unit(name, help, unit, histogram.clone());
        histogram
    }

    /// Everything that was registered.
    pub(super) fn registry(self) -> Registry {
        self.0
    }
}

/// One label and its value.
type Label = [(&'static str, String); 1];

/// A metric by the values of one label.
pub(super) struct ByLabel<M> {
    label: &'static str,
    family: Family<Label, M>,
}

impl<M> ByLabel<M> {
    fn of(&self, value: &str) -> Label {
        [(self.label, value.to_owned())]
    }
}

impl ByLabel<Counter> {
    /// Shows a count that is counted elsewhere; none of them falls.
    pub(super) fn show(&self, value: &str, count: u64) {
        let counter = self.family.get_or_create(&self.of(value));
        counter.inner().fetch_max(count, Ordering::Relaxed);
    }
}

impl ByLabel<Gauge> {
    pub(super) fn set(&self, value: &str, to: i64) {
        self.family.get_or_create(&self.of(value)).set(to);
    }

    /// Forgets every value.
    pub(super) fn clear(&self) {
        self.family.clear();
    }
}
