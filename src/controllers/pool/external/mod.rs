//! Asks external engines what they are and what they can do.
//!
//! One task per pool, every five seconds, with a deadline per question: never on a reconcile's path. What it learned is read without waiting;
//! a change puts the pool into the queue. A task ends with its pool.
//!
//! Caveats: names are looked up as the routers do it, by the resolver of this process; a controller outside of the cluster finds no Services.

mod probe;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use rollout_router::{EngineService, EngineUrlError};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use probe::{Probe, Watched};

pub(super) use probe::Access;

use crate::plan::pool::external::{Answer, ExternalEngine, Survey};
use crate::resources::pool::EngineList;

/// Between two looks at a pool's engines.
const PERIOD: Duration = Duration::from_secs(5);
/// Longest wait for a name.
const LOOKUP: Duration = Duration::from_secs(5);
/// Engines that are asked at once.
const AT_ONCE: usize = 16;
/// Engines that are asked at all: a name that leads to more is no pool.
const MOST: usize = 1024;

/// The pools whose engines are asked, by UID.
pub struct Surveys {
    probe: Probe,
    running: Mutex<HashMap<String, Running>>,
}

struct Running {
    wanted: Wanted,
    known: Arc<Known>,
    /// Its task, which ends with the entry.
    tasks: JoinSet<()>,
}

impl Running {
    fn has_ended(&mut self) -> bool {
        self.tasks.try_join_next().is_some() || self.tasks.is_empty()
    }
}

/// Which engines are asked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) engines: EngineList,
    pub(super) access: Access,
}

#[derive(Default)]
struct Known {
    trouble: Mutex<Option<String>>,
    engines: Mutex<BTreeMap<String, Watched>>,
}

impl Known {
    fn survey(&self) -> Survey {
        let engines = self.engines.lock();
        Survey {
            trouble: self.trouble.lock().clone(),
            engines: engines
                .iter()
                .map(|(url, watched)| ExternalEngine {
                    url: url.clone(),
                    answer: watched.answer.clone(),
                })
                .collect(),
        }
    }
}

impl Surveys {
    /// None yet. Asking ends with the value.
    ///
    /// # Errors
    /// No HTTP client can be made.
    pub fn new() -> reqwest::Result<Self> {
        Ok(Self {
            probe: Probe::new()?,
            running: Mutex::default(),
        })
    }

    /// Asks a pool's engines from now on, as long as `is_there`; answers what is known of them. `changed` is called after each change.
    pub(super) fn of(
        &self,
        uid: &str,
        wanted: Wanted,
        is_there: impl Fn() -> bool + Send + 'static,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Survey {
        let mut running = self.running.lock();
        // Pools that are gone.
        running.retain(|_, one| !one.has_ended());
        if let Some(one) = running.get(uid).filter(|one| one.wanted == wanted) {
            return one.known.survey();
        }
        let known = Arc::<Known>::default();
        if let EngineList::Urls(urls) = &wanted.engines {
            *known.engines.lock() = unasked(urls);
        }
        let survey = known.survey();
        let task = Task {
            probe: self.probe.clone(),
            wanted: wanted.clone(),
            known: Arc::clone(&known),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(is_there, changed));
        let one = Running {
            wanted,
            known,
            tasks,
        };
        running.insert(uid.to_owned(), one);
        survey
    }

    /// Asks a pool's engines no more.
    pub(super) fn forget(&self, uid: &str) {
        self.running.lock().remove(uid);
    }
}

fn unasked(urls: &[String]) -> BTreeMap<String, Watched> {
    let watched = |url: &String| (url.clone(), Watched::default());
    urls.iter().take(MOST).map(watched).collect()
}

struct Task {
    probe: Probe,
    wanted: Wanted,
    known: Arc<Known>,
}

impl Task {
    async fn run(self, is_there: impl Fn() -> bool, changed: impl Fn() + Sync) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !is_there() {
                return;
            }
            if self.list().await {
                changed();
            }
            let urls: Vec<String> = self.known.engines.lock().keys().cloned().collect();
            stream::iter(urls)
                .map(|url| self.look(url))
                .buffer_unordered(AT_ONCE)
                .for_each(async |is_news| {
                    if is_news {
                        changed();
                    }
                })
                .await;
        }
    }

    /// Looks up which engines there are; answers whether that is news. A lookup that says nothing changes nothing.
    async fn list(&self) -> bool {
        let EngineList::Service(name) = &self.wanted.engines else {
            return false;
        };
        let (found, trouble) = match look_up(name).await {
            Ok(urls) => (Some(urls), None),
            Err(trouble) => (None, Some(trouble)),
        };
        let mut is_news = false;
        if let Some(urls) = found {
            let mut engines = self.known.engines.lock();
            let mut now = unasked(&urls);
            is_news = now.keys().ne(engines.keys());
            for (url, watched) in &mut now {
                if let Some(before) = engines.remove(url) {
                    *watched = before;
                }
            }
            *engines = now;
        }
        let mut known = self.known.trouble.lock();
        is_news |= *known != trouble;
        *known = trouble;
        is_news
    }

    /// Asks one engine; answers whether it answered something new.
    async fn look(&self, url: String) -> bool {
        let before = self.known.engines.lock().get(&url).cloned();
        let before = before.unwrap_or_default();
        let after = self.probe.look(&url, self.wanted.access, &before).await;
        let is_news = after.answer != before.answer;
        if is_news {
            tell(&url, &after.answer);
        }
        self.known.engines.lock().insert(url, after);
        is_news
    }
}

fn tell(url: &str, answer: &Answer) {
    match answer {
        Answer::Unasked => {}
        Answer::Silent(why) => tracing::warn!(url, why, "an external engine does not answer"),
        Answer::Locked => tracing::info!(url, "an external engine answers"),
        Answer::Untested(facts, why) => {
            tracing::info!(url, ?facts, why, "an external engine is not tested");
        }
        Answer::Tested(facts, abilities) => {
            tracing::info!(url, ?facts, ?abilities, "an external engine was tested");
        }
    }
}

/// Base URLs of every address of a name, as `host:port`.
async fn look_up(name: &str) -> Result<Vec<String>, String> {
    let service: EngineService = name
        .parse()
        .map_err(|error: EngineUrlError| error.to_string())?;
    let lookup = tokio::net::lookup_host((service.host(), service.port()));
    let found = match tokio::time::timeout(LOOKUP, lookup).await {
        Err(_) => {
            return Err(format!(
                "{name} cannot be looked up: no answer within {LOOKUP:?}"
            ));
        }
        Ok(Err(error)) => return Err(format!("{name} cannot be looked up: {error}")),
        Ok(Ok(found)) => found,
    };
    let mut addresses: Vec<_> = found.collect();
    // A Service of two address families lists every engine twice.
    if addresses.iter().any(std::net::SocketAddr::is_ipv4) {
        addresses.retain(std::net::SocketAddr::is_ipv4);
    }
    if addresses.is_empty() {
        return Err(format!("{name} has no address"));
    }
    let urls = addresses
        .into_iter()
        .map(|address| format!("http://{address}"));
    Ok(urls.collect())
}
