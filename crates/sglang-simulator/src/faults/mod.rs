//! Faults on demand, as a layer in front of the routes.
//!
//! A fault is set by the configuration or by `POST /simulator/faults`, and removed by `DELETE /simulator/faults`. The control paths
//! under `/simulator/` are never hit. Which requests are hit is a function of the seed and of the order of requests.

mod body;

use serde::{Deserialize, Serialize};

pub(crate) use body::{cut, rewrite};

use crate::{http, numbers};

/// A fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// The path that it hits; every path when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What happens.
    pub kind: FaultKind,
    /// How many of 100 requests it hits.
    #[serde(default = "all")]
    pub percent: u32,
    /// The first so many requests are left alone.
    #[serde(default)]
    pub after: u64,
    /// How often it hits at most; 0 is no limit.
    #[serde(default)]
    pub times: u64,
    /// Duration of `Stall` and `SlowFirstByte`, in simulated seconds; 0 is for ever.
    #[serde(default)]
    pub seconds: f64,
}

/// A year is long enough.
const MAX_SECONDS: f64 = 31_536_000.0;

fn all() -> u32 {
    100
}

/// What happens to a request that is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FaultKind {
    /// The connection is closed without an answer, and the request is not handled. A call without a socket is answered 500 with
    /// the header `x-simulator-fault`.
    Refuse,
    /// `500 Internal Server Error`, not handled.
    Status500,
    /// `503` in the shape of a full queue, not handled.
    Status503,
    /// Nothing happens for a while; then the request is handled.
    Stall,
    /// The request is handled, and its answer is held back for a while.
    SlowFirstByte,
    /// The answer breaks off in the middle of its body.
    CutBody,
    /// The answer claims one token more than it has.
    WrongCounts,
    /// The answer lacks the ids and log-probabilities of its tokens.
    MissingIds,
    /// The server dies: every connection is closed, and no new one is accepted.
    Death,
}

impl Fault {
    /// A fault that hits every request of a path.
    pub fn new(path: impl Into<String>, kind: FaultKind) -> Self {
        Self {
            path: Some(path.into()),
            kind,
            percent: 100,
            after: 0,
            times: 0,
            seconds: 0.0,
        }
    }

    /// The same fault, hitting at most `times` requests.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// The same fault, leaving the first `after` requests alone.
    #[must_use]
    pub fn after(self, after: u64) -> Self {
        Self { after, ..self }
    }

    /// The same fault with a duration.
    #[must_use]
    pub fn seconds(self, seconds: f64) -> Self {
        Self { seconds, ..self }
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.percent > 100 {
            return Err(format!("percent is {}; write 0 to 100", self.percent));
        }
        if !(0.0..=MAX_SECONDS).contains(&self.seconds) {
            return Err(format!(
                "seconds is {}; write 0 to {MAX_SECONDS}",
                self.seconds
            ));
        }
        if self
            .path
            .as_ref()
            .is_some_and(|path| !path.starts_with('/'))
        {
            return Err("path must begin with a slash".into());
        }
        if let Some(path) = self.path.as_ref().filter(|path| !http::has_path(path)) {
            return Err(format!(
                "the engine has no path {path}, so it would hit nothing; write one such as /generate or /v1/chat/completions, or none for all"
            ));
        }
        Ok(())
    }
}

/// The faults in force, with their counts.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    seed: u64,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    seen: u64,
    hits: u64,
}

/// A fault with how often it has hit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaultReport {
    /// The fault.
    #[serde(flatten)]
    pub fault: Fault,
    /// Requests hit.
    pub hits: u64,
}

impl Faults {
    pub(crate) fn new(seed: u64, faults: Vec<Fault>) -> Self {
        let mut set = Self {
            seed,
            rules: Vec::new(),
        };
        for fault in faults {
            set.add(fault);
        }
        set
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        self.rules.push(Rule {
            fault,
            seen: 0,
            hits: 0,
        });
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// The first fault that hits a request of this path.
    pub(crate) fn strike(&mut self, path: &str) -> Option<Fault> {
        let seed = self.seed;
        self.rules
            .iter_mut()
            .enumerate()
            .find_map(|(index, rule)| rule.strike(path, numbers::mix(seed, index as u64)))
    }

    pub(crate) fn report(&self) -> Vec<FaultReport> {
        let rules = self.rules.iter();
        rules
            .map(|rule| FaultReport {
                fault: rule.fault.clone(),
                hits: rule.hits,
            })
            .collect()
    }
}

impl Rule {
    fn strike(&mut self, path: &str, seed: u64) -> Option<Fault> {
        if self.fault.path.as_ref().is_some_and(|of| of != path) {
            return None;
        }
        self.seen += 1;
        let spent = self.fault.times > 0 && self.hits >= self.fault.times;
        let drawn =
            numbers::below(numbers::mix(seed, self.seen), 100) < self.fault.percent as usize;
        if self.seen <= self.fault.after || spent || !drawn {
            return None;
        }
        self.hits += 1;
        Some(self.fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_after_and_at_most() {
        let fault = Fault::new("/generate", FaultKind::Status503)
            .after(2)
            .times(3);
        let mut faults = Faults::new(1, vec![fault]);
        let hits: Vec<bool> = (0..8)
            .map(|_| faults.strike("/generate").is_some())
            .collect();
        assert_eq!(hits, [false, false, true, true, true, false, false, false]);
        assert!(faults.strike("/health").is_none());
    }

    #[test]
    fn a_share_of_requests_is_hit_and_the_same_ones_each_time() {
        let run = || {
            let fault = Fault {
                percent: 10,
                ..Fault::new("/generate", FaultKind::Refuse)
            };
            let mut faults = Faults::new(5, vec![fault]);
            (0..1000)
                .filter(|_| faults.strike("/generate").is_some())
                .count()
        };
        assert!((70..130).contains(&run()), "{}", run());
        assert_eq!(run(), run());
    }
}
