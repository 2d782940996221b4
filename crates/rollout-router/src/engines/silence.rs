//! When an engine that has work is silent for too long. Pure: the time is passed in.
//!
//! A busy engine may be slow to answer, so one late answer says nothing. An engine whose process hangs, or whose node is gone, holds
//! its connections open and never answers: without this verdict its requests would wait for ever.

use std::time::Duration;

use tokio::time::Instant;

/// Probes that must have gone unanswered: after one long pause of our own process the first one looks as old as the pause.
const PROBES: u32 = 3;

/// A probe that has got no answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unanswered {
    pub(super) sent: Instant,
    /// When the engine was heard of last, by any answer or a piece of one.
    pub(super) heard: Instant,
    pub(super) busy: bool,
}

/// The silence of one engine.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the first probe was sent that got no answer.
    since: Option<Instant>,
    probes: u32,
}

impl Silence {
    /// Answers whether the silence has lasted for `limit` at `now`; it then begins anew, for requests that come later.
    pub(super) fn lasts(&mut self, probe: Unanswered, now: Instant, limit: Duration) -> bool {
        let Unanswered { sent, heard, busy } = probe;
        if !busy || heard >= sent {
            *self = Self::default();
            return false;
        }
        if self.since.is_some_and(|since| since < heard) {
            *self = Self::default();
        }
        self.probes += 1;
        let since = *self.since.get_or_insert(sent);
        let lasts = self.probes >= PROBES && now.saturating_duration_since(since) >= limit;
        if lasts {
            *self = Self::default();
        }
        lasts
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Silence, Unanswered};

    const LIMIT: Duration = Duration::from_mins(1);

    /// Probes every 5 s from second 10 on, each unanswered; answers the second of the verdict.
    fn verdict(heard: impl Fn(u64) -> u64, busy: impl Fn(u64) -> bool) -> Option<u64> {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut silence = Silence::default();
        (10..300).step_by(5).find(|second| {
            let probe = Unanswered {
                sent: at(*second),
                heard: at(heard(*second)),
                busy: busy(*second),
            };
            silence.lasts(probe, at(second + 5), LIMIT)
        })
    }

    #[test]
    fn an_engine_with_work_that_answers_nothing_for_the_limit_is_silent() {
        assert_eq!(verdict(|_| 0, |_| true), Some(65));
    }

    #[test]
    fn an_engine_that_answers_within_the_limit_is_not() {
        // A long prefill: the only word comes every 50 s.
        assert_eq!(verdict(|second| second / 50 * 50 + 1, |_| true), None);
        // From the last word on the limit counts anew.
        assert_eq!(
            verdict(|second| if second < 52 { 0 } else { 52 }, |_| true),
            Some(110)
        );
    }

    #[test]
    fn a_long_pause_of_our_own_is_no_silence_of_the_engine() {
        let start = Instant::now();
        let mut silence = Silence::default();
        let mut unanswered = |sent: u64, now: u64| {
            let at = |second| start + Duration::from_secs(second);
            let probe = Unanswered {
                sent: at(sent),
                heard: at(0),
                busy: true,
            };
            silence.lasts(probe, at(now), LIMIT)
        };
        // The process stood still from second 1 to 500.
        assert!(!unanswered(1, 500));
        assert!(!unanswered(500, 505));
        assert!(unanswered(505, 510));
    }

    #[test]
    fn an_engine_without_work_has_nothing_to_say() {
        assert_eq!(verdict(|_| 0, |_| false), None);
        assert_eq!(verdict(|_| 0, |second| second >= 100), Some(155));
        assert_eq!(verdict(|_| 0, |second| second % 50 != 0), None);
    }
}
