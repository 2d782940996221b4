//! When an engine has ended its work. Pure: the time is passed in.
//!
//! SGLang's load figures lag behind (they are published every few steps), and routers learn only after a while that an engine leaves.
//! So one look at an idle engine proves nothing: it has to be idle for a time. A paused engine is never idle: requests that wait at its
//! gate are in no figure.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// Times of a drain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// For all of it.
    pub(super) limit: Duration,
    /// How long an engine has to be idle.
    pub(super) settle: Duration,
}

/// What one look at the engine showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Requests that run or wait.
    Requests(u64),
    /// It is paused.
    Paused,
    /// Nothing listens there: it has ended.
    Gone,
    /// It did not say.
    Unknown(String),
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// The engine has no request.
    Idle,
    /// The engine has ended.
    Gone,
    /// The time was over.
    TimedOut,
}

/// One drain.
#[derive(Debug)]
pub(super) struct Drain {
    times: Times,
    began: Instant,
    idle_since: Option<Instant>,
}

impl Drain {
    pub(super) fn new(times: Times, now: Instant) -> Self {
        Self {
            times,
            began: now,
            idle_since: None,
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// When it ends at the latest.
    pub(super) fn deadline(&self) -> Instant {
        self.began + self.times.limit
    }

    /// Takes note of what was seen at `now`; answers whether that is the end.
    pub(super) fn see(&mut self, seen: &Seen, now: Instant) -> Option<End> {
        self.idle_since = match seen {
            Seen::Gone => return Some(End::Gone),
            Seen::Requests(0) => Some(self.idle_since.unwrap_or(now)),
            Seen::Requests(_) | Seen::Paused | Seen::Unknown(_) => None,
        };
        let idle = self.idle_since.map(|since| now - since);
        if idle.is_some_and(|idle| idle >= self.times.settle) {
            return Some(End::Idle);
        }
        (now >= self.deadline()).then_some(End::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Drain, End, Seen, Times};

    /// The second of the end, and which one, for what is seen every second.
    fn end(seen: impl Fn(u64) -> Seen) -> Option<(u64, End)> {
        let start = Instant::now();
        let times = Times {
            limit: Duration::from_mins(1),
            settle: Duration::from_secs(4),
        };
        let mut drain = Drain::new(times, start);
        (0..100).find_map(|second| {
            let end = drain.see(&seen(second), start + Duration::from_secs(second));
            end.map(|end| (second, end))
        })
    }

    #[test]
    fn an_engine_is_drained_when_it_was_idle_for_a_while() {
        assert_eq!(end(|_| Seen::Requests(0)), Some((4, End::Idle)));
        let works_until = |last| move |second| Seen::Requests(u64::from(second <= last));
        assert_eq!(end(works_until(20)), Some((25, End::Idle)));
    }

    #[test]
    fn a_request_that_comes_late_begins_the_while_anew() {
        let late = |second| Seen::Requests(u64::from(second == 3));
        assert_eq!(end(late), Some((8, End::Idle)));
        let silent = |second| match second {
            3 => Seen::Unknown("no answer".to_owned()),
            _ => Seen::Requests(0),
        };
        assert_eq!(end(silent), Some((8, End::Idle)));
    }

    #[test]
    fn an_engine_that_does_not_become_idle_is_waited_for_to_the_limit() {
        for seen in [
            Seen::Requests(3),
            Seen::Paused,
            Seen::Unknown("401".to_owned()),
        ] {
            assert_eq!(end(|_| seen.clone()), Some((60, End::TimedOut)));
        }
    }

    #[test]
    fn an_engine_that_has_ended_is_not_waited_for() {
        let dies = |second| match second {
            0..5 => Seen::Requests(2),
            _ => Seen::Gone,
        };
        assert_eq!(end(dies), Some((5, End::Gone)));
    }
}
