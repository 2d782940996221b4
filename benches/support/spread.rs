//! Median and spread of repeated measurements.

use std::fmt;

/// Repeated measurements of one figure.
#[derive(Debug, Default)]
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value that `percent` of the measurements do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() - 1) * percent / 100]
    }
}

/// Median, and in brackets least and greatest, with the precision that the format asks for.
impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = formatter.precision().unwrap_or(1);
        let [median, least, greatest] = [50, 0, 100].map(|percent| self.percentile(percent));
        write!(
            formatter,
            "{median:.digits$} ({least:.digits$} to {greatest:.digits$})"
        )
    }
}
