//! Whether an engine may get work: several failures in a row take it out, several successes bring it back.

/// Failures in a row after which an engine gets no new work.
const FAILURES: u8 = 3;
/// Successes in a row after which it gets work again.
const SUCCESSES: u8 = 2;

/// Standing of an engine. It starts as up: nobody waits for a first probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Health {
    up: bool,
    streak: u8,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            up: true,
            streak: 0,
        }
    }
}

impl Health {
    pub(super) fn is_up(self) -> bool {
        self.up
    }

    /// Returns whether the standing changed.
    pub(super) fn success(&mut self) -> bool {
        self.observe(true, SUCCESSES)
    }

    /// Returns whether the standing changed.
    pub(super) fn failure(&mut self) -> bool {
        self.observe(false, FAILURES)
    }

    /// Out, without a second look.
    pub(super) fn take_out(&mut self) {
        *self = Self {
            up: false,
            streak: 0,
        };
    }

    fn observe(&mut self, good: bool, needed: u8) -> bool {
        if self.up == good {
            self.streak = 0;
            return false;
        }
        self.streak += 1;
        if self.streak < needed {
            return false;
        }
        *self = Self {
            up: good,
            streak: 0,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Health;

    #[test]
    fn one_slow_answer_takes_no_engine_out() {
        let mut health = Health::default();
        assert!(!health.failure());
        assert!(!health.failure());
        assert!(!health.success());
        assert!(!health.failure());
        assert!(!health.failure());
        assert!(health.is_up());
        assert!(health.failure());
        assert!(!health.is_up());
    }

    #[test]
    fn an_engine_comes_back_after_two_answers() {
        let mut health = Health::default();
        for _ in 0..3 {
            health.failure();
        }
        assert!(!health.success());
        assert!(!health.failure());
        assert!(!health.success());
        assert!(health.success());
        assert!(health.is_up());
    }
}
