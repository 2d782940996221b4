//! Pauses between tries: exponential, with jitter, and an end.

use std::time::Duration;

use rand::RngExt;

/// When to try again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// No further try begins after this time.
    pub give_up_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            longest: Duration::from_secs(2),
            give_up_after: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// One try.
    pub fn none() -> Self {
        Self {
            give_up_after: Duration::ZERO,
            ..Self::default()
        }
    }

    /// The pause before try number `tries` (1 for the first repetition) when `elapsed` of `within` is spent, or `None` when it is over.
    pub(crate) fn pause(
        &self,
        tries: u32,
        elapsed: Duration,
        within: Duration,
    ) -> Option<Duration> {
        let full = self
            .first
            .saturating_mul(
                1u32.checked_shl(tries.saturating_sub(1))
                    .unwrap_or(u32::MAX),
            )
            .min(self.longest);
        let pause = full.mul_f64(rand::rng().random_range(0.5..=1.0));
        (elapsed + pause < self.give_up_after.min(within)).then_some(pause)
    }
}
