//! Engines that are found by name: the addresses of a headless Service, looked up again and again.
//!
//! An answer without an address and a lookup that fails change nothing: a name server that is out would else cost all engines at once.
//! They are said in `/ready`, `/status` and the metrics. A lookup that hangs is said too, and is waited for: there is never more than one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::resolver::{Addresses, Resolver};
use super::{EngineService, Engines};
use crate::metrics::LookupCounter;

/// Times of lookups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupTimes {
    /// Between two.
    pub(crate) period: Duration,
    /// After which one is said to hang.
    pub(crate) limit: Duration,
}

/// How a lookup ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookupEnd {
    /// With addresses.
    Found,
    /// Without one.
    Empty,
    /// With an error, or not in time.
    Failed,
}

impl LookupEnd {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Empty => "empty",
            Self::Failed => "failed",
        }
    }
}

/// What is known of the lookups.
#[derive(Debug, Default)]
struct Known {
    /// Addresses of the last answer that had some.
    addresses: usize,
    /// Lookups in a row that said nothing.
    failures: u64,
    /// What was wrong with the last one.
    trouble: Option<String>,
    looked: bool,
}

/// The service that engines are behind.
#[derive(Debug)]
pub(crate) struct Discovery {
    service: EngineService,
    resolver: Resolver,
    known: Mutex<Known>,
}

impl Discovery {
    pub(super) fn new(service: EngineService, resolver: Resolver) -> Self {
        Self {
            service,
            resolver,
            known: Mutex::default(),
        }
    }

    /// Why no engine is known.
    pub(super) fn none_known(&self) -> String {
        let known = self.known.lock();
        match &known.trouble {
            Some(trouble) => trouble.clone(),
            None if known.looked => format!("no address of {} can be used", self.service),
            None => format!("{} has not been looked up yet", self.service),
        }
    }

    /// What is wrong although there are engines.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.known.lock().trouble.clone()?;
        Some(format!("{trouble}: the last list of engines is kept"))
    }

    pub(crate) fn status(&self) -> Value {
        let known = self.known.lock();
        json!({
            "name": self.service.to_string(),
            "addresses": known.addresses,
            "failed_lookups": known.failures,
            "error": known.trouble,
        })
    }

    fn note_found(&self, addresses: usize) {
        *self.known.lock() = Known {
            addresses,
            failures: 0,
            trouble: None,
            looked: true,
        };
    }

    fn note_trouble(&self, trouble: String) {
        let mut known = self.known.lock();
        known.looked = true;
        known.failures += 1;
        if known.trouble.as_ref() != Some(&trouble) {
            tracing::warn!("{trouble}");
        }
        known.trouble = Some(trouble);
    }
}

/// Looks the service up until it is dropped; ends at once when there is none.
pub(crate) async fn run(engines: Arc<Engines>, times: LookupTimes, counter: LookupCounter) {
    let Some(discovery) = engines.discovery() else {
        return;
    };
    let mut ticks = tokio::time::interval(times.period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = look_up(discovery, times.limit, &counter).await;
        let service = &discovery.service;
        let end = match answer {
            Ok(addresses) if addresses.is_empty() => {
                discovery.note_trouble(format!("{service} has no address"));
                LookupEnd::Empty
            }
            Ok(addresses) => {
                let addresses = one_family(addresses);
                engines.update(&addresses);
                discovery.note_found(addresses.len());
                LookupEnd::Found
            }
            Err(error) => {
                discovery.note_trouble(format!("{service} cannot be looked up: {error}"));
                LookupEnd::Failed
            }
        };
        counter.count(end);
    }
}

/// One lookup, to its end. One that takes too long is told, every time that its limit is over.
async fn look_up(discovery: &Discovery, limit: Duration, counter: &LookupCounter) -> Addresses {
    let mut lookup = discovery.resolver.lookup(&discovery.service);
    loop {
        if let Ok(answer) = tokio::time::timeout(limit, &mut lookup).await {
            return answer;
        }
        let service = &discovery.service;
        discovery.note_trouble(format!(
            "{service} cannot be looked up: no answer within {limit:?}"
        ));
        counter.count(LookupEnd::Failed);
    }
}

/// A Service of two address families lists every engine twice: IPv4 is taken where there is any.
fn one_family(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::one_family;

    #[test]
    fn an_engine_with_two_addresses_is_one_engine() {
        let parse = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let both = parse(&["[fd00::1]:1", "10.0.0.1:1", "[fd00::2]:1", "10.0.0.2:1"]);
        assert_eq!(one_family(both), parse(&["10.0.0.1:1", "10.0.0.2:1"]));
        let six = parse(&["[fd00::1]:1", "[fd00::2]:1"]);
        assert_eq!(one_family(six.clone()), six);
    }
}
