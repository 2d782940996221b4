//! What is known of a list of engines, from asking them again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use engine_http::Trust;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use rollout_router::{EngineService, EngineUrlError};

use super::probe::{Probe, Watched};
use crate::controllers::pool::looks::Looks;
use crate::plan::pool::external::{Answer, ExternalEngine, Survey};
use crate::resources::pool::EngineList;

/// Longest wait for a name.
const LOOKUP: Duration = Duration::from_secs(5);
/// Engines that are asked at once.
const AT_ONCE: usize = 16;
/// Engines that are asked at all: a name that leads to more is no pool.
const MOST: usize = 1024;

/// What engines are asked with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Bearer of every request.
    pub key: Option<String>,
    /// Who vouches for engines behind https, as PEM text; none: whom browsers trust.
    pub ca: Option<String>,
}

/// Credentials as they are now, or what is missing.
pub type CredentialsNow = Box<dyn Fn() -> Result<Credentials, String> + Send + Sync>;

/// Asks engines.
pub struct Surveyor {
    engines: EngineList,
    credentials: CredentialsNow,
    known: Known,
}

#[derive(Default)]
struct Known {
    missing: Mutex<Option<String>>,
    trouble: Mutex<Option<String>>,
    engines: Mutex<BTreeMap<String, Watched>>,
}

impl Surveyor {
    /// One that has asked nobody yet.
    pub fn new(engines: EngineList, credentials: CredentialsNow) -> Self {
        let known = Known::default();
        if let EngineList::Urls(urls) = &engines {
            *known.engines.lock() = unasked(urls);
        }
        Self {
            engines,
            credentials,
            known,
        }
    }

    /// What is known.
    pub fn survey(&self) -> Survey {
        let engines = self.known.engines.lock();
        Survey {
            missing: self.known.missing.lock().clone(),
            trouble: self.known.trouble.lock().clone(),
            engines: engines
                .iter()
                .map(|(url, watched)| ExternalEngine {
                    url: url.clone(),
                    answer: watched.answer.clone(),
                })
                .collect(),
        }
    }

    /// Asks as long as `is_there`; `changed` is called after each change.
    pub async fn run(&self, is_there: impl Fn() -> bool, changed: impl Fn() + Sync) {
        let mut looks = Looks::new(is_there);
        let mut current: Option<(Credentials, Probe)> = None;
        while looks.go_on().await {
            let now = (self.credentials)();
            let now = now.and_then(|credentials| match current.take() {
                Some((before, probe)) if before == credentials => Ok((before, probe)),
                _ => self.begin(credentials),
            });
            let missing = now.as_ref().err().cloned();
            current = now.ok();
            let was_missing = std::mem::replace(&mut *self.known.missing.lock(), missing.clone());
            if was_missing != missing {
                changed();
            }
            let Some((_, probe)) = &current else {
                continue;
            };
            if self.list().await {
                changed();
            }
            let urls: Vec<String> = self.known.engines.lock().keys().cloned().collect();
            stream::iter(urls)
                .map(|url| self.look(probe, url))
                .buffer_unordered(AT_ONCE)
                .for_each(async |is_news| {
                    if is_news {
                        changed();
                    }
                })
                .await;
        }
    }

    /// With other credentials an engine may answer another thing: nothing that was found out holds.
    fn begin(&self, credentials: Credentials) -> Result<(Credentials, Probe), String> {
        let trust = match &credentials.ca {
            None => Trust::public(),
            Some(pem) => Trust::only(pem).map_err(|error| format!("the CA is none: {error}"))?,
        };
        for watched in self.known.engines.lock().values_mut() {
            *watched = Watched::default();
        }
        let probe = Probe::new(trust, credentials.key.as_deref());
        Ok((credentials, probe))
    }

    /// Looks up which engines there are; answers whether that is news. A lookup that says nothing changes nothing.
    async fn list(&self) -> bool {
        let EngineList::Service(name) = &self.engines else {
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
    async fn look(&self, probe: &Probe, url: String) -> bool {
        let before = self.known.engines.lock().get(&url).cloned();
        let before = before.unwrap_or_default();
        let after = probe.look(&url, &before).await;
        let is_news = after.answer != before.answer;
        if is_news {
            tell(&url, &after.answer);
        }
        self.known.engines.lock().insert(url, after);
        is_news
    }
}

/// Engines that nobody has asked.
fn unasked(urls: &[String]) -> BTreeMap<String, Watched> {
    let watched = |url: &String| (url.clone(), Watched::default());
    urls.iter().take(MOST).map(watched).collect()
}

fn tell(url: &str, answer: &Answer) {
    match answer {
        Answer::Unasked => {}
        Answer::Silent(why) => tracing::warn!(url, why, "an external engine does not answer"),
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
