//! The load figures of `/v1/loads` and `/metrics`.
//!
//! SGLang publishes a snapshot every 15 decode steps, after a prefill, and when it runs dry; in between the figures are old. So are
//! these.

use super::{Nanos, Scheduler};

/// Decode steps between two snapshots.
pub(super) const PUBLISH_STEPS: u64 = 15;

/// A snapshot of the load, with the time at which it was true.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// When.
    pub at: Nanos,
    /// Running requests.
    pub running: usize,
    /// Waiting requests.
    pub waiting: usize,
    /// Prompt tokens of waiting requests that were not cached when they came.
    pub waiting_tokens: usize,
    /// Tokens in use by running requests.
    pub used_tokens: usize,
    /// Tokens that the cache keeps for later.
    pub evictable_tokens: usize,
    /// Tokens per second over the running batch.
    pub throughput: f64,
    /// Share of the last prompts that was found in the cache.
    pub cache_hit_rate: f64,
    /// Uncached prompt tokens computed so far.
    pub prefilled_tokens: u64,
    /// Time spent in prefill so far.
    pub prefill_busy: Nanos,
    /// Over all decode steps: count, sum of batch sizes, of microseconds, of squared batch sizes, of batch size times
    /// microseconds, of tokens.
    pub decode_moments: [f64; 6],
    /// Prompt tokens found in the cache so far.
    pub cached_tokens: u64,
    /// Decode steps so far.
    pub steps: u64,
}

#[derive(Debug, Default)]
pub(super) struct Statistics {
    published: Load,
    prefilled_tokens: u64,
    prefill_busy: Nanos,
    cached_tokens: u64,
    hit_rate: f64,
    moments: [f64; 6],
}

impl Statistics {
    pub(super) fn prefilled(&mut self, tokens: usize, busy: Nanos) {
        self.prefilled_tokens += tokens as u64;
        self.prefill_busy += busy;
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(super) fn looked_up(&mut self, cached: usize, prompt: usize) {
        self.cached_tokens += cached as u64;
        self.hit_rate = cached as f64 / prompt.max(1) as f64;
    }

    #[expect(clippy::cast_precision_loss, reason = "sums for an estimate")]
    pub(super) fn decoded(&mut self, steps: u64, batch: usize, step: Nanos) {
        let (n, b, us) = (steps as f64, batch as f64, step as f64 / 1000.0);
        for (sum, value) in
            self.moments
                .iter_mut()
                .zip([n, n * b, n * us, n * b * b, n * b * us, n * b])
        {
            *sum += value;
        }
    }
}

impl Scheduler {
    /// The last snapshot; the state of now when the engine is idle and not paused.
    pub fn load(&mut self, now: Nanos) -> Load {
        self.settle(now);
        if self.running == 0 && self.waiting.is_empty() && self.paused.is_none() {
            self.publish_load(now);
        }
        self.statistics.published.clone()
    }

    /// Running and waiting requests of this moment: for tests and reports, no engine tells them.
    pub fn occupancy(&self) -> (usize, usize) {
        let prefilling = self.requests.len() - self.running - self.waiting.len();
        (self.running + prefilling, self.waiting.len())
    }

    pub(super) fn publish_load(&mut self, at: Nanos) {
        self.publish_load_of(at, 0);
    }

    /// Publishes the state of `steps_ago` steps before now.
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(super) fn publish_load_of(&mut self, at: Nanos, steps_ago: u64) {
        let since = self.running * usize::try_from(steps_ago).unwrap_or(0);
        let per_second = if self.running == 0 {
            0.0
        } else {
            1e9 / self.step_time() as f64
        };
        let waiting_tokens = self
            .waiting
            .iter()
            .filter_map(|key| self.requests.get(key))
            .map(|request| request.uncached)
            .sum();
        self.statistics.published = Load {
            at,
            running: self.running,
            waiting: self.waiting.len(),
            waiting_tokens,
            used_tokens: self.cache.protected() + self.private_tokens - since,
            evictable_tokens: self.cache.tokens() - self.cache.protected(),
            throughput: self.running as f64 * per_second,
            cache_hit_rate: self.statistics.hit_rate,
            prefilled_tokens: self.statistics.prefilled_tokens,
            prefill_busy: self.statistics.prefill_busy,
            decode_moments: self.statistics.moments,
            cached_tokens: self.statistics.cached_tokens,
            steps: self.steps - steps_ago,
        };
    }
}
