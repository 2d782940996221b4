//! Zipf's law: how likely the tokens of each rank are at one temperature.
//!
//! Weights are not normalized: that of the likeliest rank is 1. They are summed from the least likely end, so that what remains without the
//! likeliest tokens is exact even where a low temperature makes it tiny.

/// Exponent of the law at temperature 1.
pub(super) const EXPONENT: f64 = 1.6;

/// The law over the ranks of an alphabet.
#[derive(Debug)]
pub struct Law {
    temperature: f64,
    /// Weight of this rank and of all after it; 0 beyond the last.
    tails: Vec<f64>,
}

impl Law {
    pub(super) fn new(size: usize, temperature: f64) -> Self {
        let exponent = EXPONENT / temperature;
        let mut tails = vec![0.0; size + 1];
        for rank in (0..size).rev() {
            tails[rank] = tails[rank + 1] + as_f64(rank + 1).powf(-exponent);
        }
        Self { temperature, tails }
    }

    pub(super) fn temperature(&self) -> f64 {
        self.temperature
    }

    /// Ranks in all.
    pub(super) fn size(&self) -> usize {
        self.tails.len() - 1
    }

    /// Weight of the ranks from `first` up to `end`, which is not among them.
    pub(super) fn between(&self, first: usize, end: usize) -> f64 {
        self.tails[first] - self.tails[end]
    }

    /// Weight of all ranks.
    pub(super) fn sum(&self) -> f64 {
        self.tails[0]
    }

    /// Logarithm of a rank's weight.
    pub(super) fn log_weight(&self, rank: usize) -> f64 {
        -EXPONENT / self.temperature * as_f64(rank + 1).ln()
    }

    /// The rank from `first` up to `end` before which the weight reaches `target`.
    pub(super) fn find(&self, first: usize, end: usize, target: f64) -> usize {
        let start = self.tails[first];
        let passed = self.tails[first + 1..end].partition_point(|tail| start - tail <= target);
        first + passed
    }

    /// A rank, drawn.
    pub(super) fn rank(&self, unit: f64) -> usize {
        self.find(0, self.size(), unit * self.sum())
    }

    /// How many ranks come before the weight of those before them exceeds `share` of the whole.
    pub(super) fn within(&self, share: f64) -> usize {
        let most = share * self.sum();
        let ranks = self.tails[..self.size()].partition_point(|tail| self.sum() - tail <= most);
        ranks.max(1)
    }

    /// How many ranks have at least `share` of the likeliest one's weight.
    pub(super) fn above(&self, share: f64) -> usize {
        let (mut low, mut high) = (1, self.size());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.log_weight(middle) >= share.ln() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "float32 is what an engine computes"
    )]
    pub(super) fn log_probability(&self, rank: usize) -> f32 {
        (self.log_weight(rank) - self.sum().ln()) as f32
    }
}

#[expect(clippy::cast_precision_loss, reason = "vocabularies are small")]
pub(super) fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_keep_what_their_definitions_say() {
        let law = Law::new(1000, 1.0);
        let share = |ranks: usize| law.between(0, ranks) / law.sum();
        for top_p in [0.1, 0.5, 0.9, 0.99] {
            let kept = law.within(top_p);
            assert!(
                share(kept) > top_p && share(kept - 1) <= top_p,
                "{top_p} kept {kept}"
            );
        }
        assert_eq!(law.within(1.0), 1000);
        for min_p in [0.001, 0.1, 0.5, 1.0] {
            let kept = law.above(min_p);
            assert!(law.log_weight(kept - 1).exp() >= min_p * 0.999);
            assert!(law.log_weight(kept).exp() < min_p);
        }
        assert_eq!(law.above(0.0), 1000);
    }

    #[test]
    fn every_rank_is_found_by_its_weight() {
        let law = Law::new(50, 0.7);
        for rank in 3..50 {
            let before = law.between(3, rank);
            let inside = before + (law.between(3, rank + 1) - before) / 2.0;
            assert_eq!(law.find(3, 50, inside), rank);
        }
    }
}
