//! The list of engines. It changes while requests come and go: who reads it gets what it was at that moment.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use tokio::sync::Notify;

use super::EngineUrlError;
use super::discovery::Discovery;
use super::engine::{Engine, Origin, Outstanding};
use crate::config::Config;

/// The engines of the pool.
#[derive(Debug)]
pub(crate) struct Engines {
    list: RwLock<Arc<[Arc<Engine>]>>,
    turn: AtomicUsize,
    /// The list has engines that it did not have.
    grown: Notify,
    discovery: Option<Discovery>,
}

/// What adding an engine did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is new, or had been taken away.
    New,
    /// It was there.
    Known,
}

/// Engines that are given by their URLs.
pub(super) fn given(urls: &[String]) -> Result<Vec<Arc<Engine>>, EngineUrlError> {
    let mut engines: Vec<Arc<Engine>> = Vec::with_capacity(urls.len());
    for url in urls {
        let engine = Engine::new(url, Origin::Given)?;
        if engines.iter().any(|other| other.url() == engine.url()) {
            return Err(EngineUrlError::Invalid {
                url: url.clone(),
                problem: "is given twice",
            });
        }
        engines.push(Arc::new(engine));
    }
    Ok(engines)
}

/// One engine that says why is enough: most often they all have the same trouble.
fn first_problem(engines: &[Arc<Engine>]) -> String {
    let mut troubled = engines
        .iter()
        .filter_map(|engine| Some((engine.url(), engine.problem()?)));
    troubled
        .next()
        .map_or_else(String::new, |(url, problem)| format!(": {url}: {problem}"))
}

impl Engines {
    /// The engines that a router begins with.
    pub(crate) fn new(config: &Config) -> Result<Self, EngineUrlError> {
        let discovery = config.engine_service.clone();
        let discovery = discovery.map(|service| Discovery::new(service, config.resolver.clone()));
        if config.engines.is_empty() && discovery.is_none() {
            return Err(EngineUrlError::None);
        }
        Ok(Self {
            list: RwLock::new(given(&config.engines)?.into()),
            turn: AtomicUsize::new(0),
            grown: Notify::new(),
            discovery,
        })
    }

    /// The engines now, those that drain too.
    pub(crate) fn all(&self) -> Arc<[Arc<Engine>]> {
        Arc::clone(&self.list.read())
    }

    /// How engines are found by name, if they are.
    pub(crate) fn discovery(&self) -> Option<&Discovery> {
        self.discovery.as_ref()
    }

    /// The list has engines that it did not have when this was asked.
    pub(super) fn grown(&self) -> &Notify {
        &self.grown
    }

    /// The healthy engine that is not paused with the least outstanding work, of equals the one with the fewest sessions, of those in turn; none of
    /// `tried`, and none that drains. When all seem to be broken, one of them is tried all the same: it is the request that finds out.
    pub(crate) fn pick(&self, tried: &[Arc<Engine>]) -> Option<Arc<Engine>> {
        // A list that is being replaced may look as if all of it drained. While it is locked, nothing changes.
        self.pick_of(&self.all(), tried)
            .or_else(|| self.pick_of(&self.list.read(), tried))
    }

    fn pick_of(&self, list: &[Arc<Engine>], tried: &[Arc<Engine>]) -> Option<Arc<Engine>> {
        let count = list.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        (0..count)
            .map(|step| &list[(first.wrapping_add(step)) % count])
            .filter(|engine| !engine.is_draining())
            .filter(|engine| !tried.iter().any(|other| Arc::ptr_eq(other, engine)))
            .min_by_key(|engine| {
                let waits = (!engine.is_healthy(), engine.is_paused());
                (waits, engine.in_flight(), engine.sessions())
            })
            .cloned()
    }

    /// A place for a request at the engine that [`Self::pick`] names.
    pub(crate) fn place(&self, tried: &[Arc<Engine>]) -> Option<Outstanding> {
        loop {
            let engine = self.pick(tried)?;
            // It may have left since: then it is not picked again.
            if let Some(place) = Outstanding::at(&engine) {
                return Some(place);
            }
        }
    }

    /// Why there is no engine to pick.
    pub(crate) fn why_none(&self) -> String {
        let list = self.all();
        match &self.discovery {
            Some(discovery) if list.iter().all(|engine| engine.is_draining()) => {
                discovery.none_known()
            }
            _ if list.iter().all(|engine| engine.has_left()) => {
                "all were taken away: add one with POST /workers".to_owned()
            }
            _ => "all are out of service".to_owned(),
        }
    }

    /// What is missing before work can be done.
    pub(crate) fn missing(&self) -> Option<String> {
        let list = self.all();
        if list.iter().any(|engine| engine.serves()) {
            return None;
        }
        let known = list.iter().filter(|engine| !engine.is_draining()).count();
        Some(match (&self.discovery, known) {
            (Some(discovery), 0) => format!("no engine is known: {}", discovery.none_known()),
            (_, known) => format!(
                "no engine answers, of {known} that are known{}",
                first_problem(&list)
            ),
        })
    }

    /// Takes over the addresses of a lookup: new ones get work, those that are missing drain, those that are back serve again.
    pub(super) fn update(&self, addresses: &[SocketAddr]) {
        let found: Vec<String> = addresses
            .iter()
            .map(|address| format!("http://{address}"))
            .collect();
        let wanted: HashSet<&str> = found.iter().map(String::as_str).collect();
        let mut list = self.list.write();
        for engine in list
            .iter()
            .filter(|engine| engine.origin() == Origin::Found)
        {
            let drains = !wanted.contains(engine.url());
            if engine.set_left(drains) {
                tracing::info!(engine = engine.url(), drains, "engine left or came back");
            }
        }
        let known: HashSet<&str> = list.iter().map(|engine| engine.url()).collect();
        let mut new: Vec<Arc<Engine>> = Vec::new();
        for url in &found {
            let is_known = known.contains(url.as_str());
            if is_known || new.iter().any(|other| other.url() == url) {
                continue;
            }
            match Engine::new(url, Origin::Found) {
                Ok(engine) => new.push(Arc::new(engine)),
                Err(error) => tracing::warn!(%error, "an address of the lookup is no engine"),
            }
        }
        if new.is_empty() {
            return;
        }
        for engine in &new {
            tracing::info!(engine = engine.url(), "engine found");
        }
        *list = list.iter().cloned().chain(new).collect();
        drop(list);
        self.grown.notify_waiters();
    }

    /// The engine of an id or address.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Engine>> {
        let address = name.trim_end_matches('/');
        let list = self.all();
        let mut list = list.iter();
        let found = list.find(|engine| engine.url() == address || engine.id().as_str() == name);
        found.cloned()
    }

    /// Adds an engine by its URL; one that had been taken away serves again.
    pub(crate) fn add(&self, url: &str) -> Result<(Arc<Engine>, Arrival), EngineUrlError> {
        let new = Arc::new(Engine::new(url, Origin::Given)?);
        let mut list = self.list.write();
        if let Some(known) = list.iter().find(|engine| engine.url() == new.url()) {
            let is_back = known.origin() == Origin::Given && known.set_left(false);
            let arrival = if is_back {
                Arrival::New
            } else {
                Arrival::Known
            };
            return Ok((Arc::clone(known), arrival));
        }
        tracing::info!(engine = new.url(), "engine added");
        *list = list.iter().cloned().chain([Arc::clone(&new)]).collect();
        drop(list);
        self.grown.notify_waiters();
        Ok((new, Arrival::New))
    }

    /// Lets an engine leave. Answers false for one that the next lookup would find again.
    pub(crate) fn take_away(&self, engine: &Engine) -> bool {
        if engine.origin() == Origin::Found {
            return false;
        }
        // While the list is locked, nobody adds it.
        let _list = self.list.write();
        if engine.set_left(true) {
            tracing::info!(engine = engine.url(), "engine taken away");
        }
        true
    }

    /// Forgets an engine that has left and has no work any more. Answers whether it did.
    pub(super) fn forget(&self, engine: &Arc<Engine>) -> bool {
        let mut list = self.list.write();
        if !engine.has_left() || engine.in_flight() > 0 {
            return false;
        }
        *list = list
            .iter()
            .filter(|other| !Arc::ptr_eq(other, engine))
            .cloned()
            .collect();
        tracing::info!(engine = engine.url(), "engine forgotten");
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::{Config, Engine, Engines, Outstanding};
    use crate::engines::Resolver;

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 30_000))
    }

    fn engines(given: &[&str]) -> Engines {
        let mut config = Config::new(given.iter().copied());
        config.engine_service = Some("engines:30000".parse().unwrap());
        config.resolver = Resolver::new(|_| async { Ok(Vec::new()) });
        Engines::new(&config).unwrap()
    }

    fn urls(engines: &Engines) -> Vec<(String, bool)> {
        let list = engines.all();
        let seen = list.iter().map(|engine| {
            let host = engine.url().trim_start_matches("http://10.0.0.");
            let host = host.trim_end_matches(":30000");
            (host.to_owned(), engine.is_draining())
        });
        seen.collect()
    }

    fn expected(list: &[(u8, bool)]) -> Vec<(String, bool)> {
        list.iter()
            .map(|(number, drains)| (number.to_string(), *drains))
            .collect()
    }

    fn engine(engines: &Engines, number: u8) -> Arc<Engine> {
        let url = format!("http://{}", address(number));
        let list = engines.all();
        let found = list.iter().find(|engine| engine.url() == url);
        Arc::clone(found.unwrap())
    }

    #[test]
    fn an_engine_that_leaves_is_forgotten_once_its_work_has_ended() {
        let engines = engines(&[]);
        assert!(engines.pick(&[]).is_none());
        engines.update(&[address(1), address(2), address(2)]);
        assert_eq!(urls(&engines), expected(&[(1, false), (2, false)]));
        let first = engine(&engines, 1);
        assert!(!engines.forget(&first));
        let work = Outstanding::at(&first).unwrap();
        engines.update(&[address(2), address(3)]);
        let drains = expected(&[(1, true), (2, false), (3, false)]);
        assert_eq!(urls(&engines), drains);
        assert!(!engines.forget(&first));
        assert!(Outstanding::at(&first).is_none());
        assert_eq!(first.in_flight(), 1);
        drop(work);
        assert!(engines.forget(&first));
        assert_eq!(urls(&engines), expected(&[(2, false), (3, false)]));
    }

    #[test]
    fn an_engine_that_drains_is_not_picked_even_if_all_others_are_out() {
        let engines = engines(&[]);
        engines.update(&[address(1), address(2)]);
        engines.update(&[address(2)]);
        for _ in 0..3 {
            engine(&engines, 2).note_failure();
        }
        for _ in 0..4 {
            assert_eq!(engines.pick(&[]).unwrap().url(), "http://10.0.0.2:30000");
        }
        assert!(engines.pick(&[engine(&engines, 2)]).is_none());
        let missing = engines.missing().unwrap();
        assert_eq!(missing, "no engine answers, of 1 that are known");
    }

    #[test]
    fn an_engine_that_comes_back_is_the_same_one() {
        let engines = engines(&[]);
        engines.update(&[address(1), address(2)]);
        let first = engine(&engines, 1);
        let work = Outstanding::at(&first).unwrap();
        engines.update(&[address(2)]);
        engines.update(&[address(2), address(1)]);
        assert_eq!(urls(&engines), expected(&[(1, false), (2, false)]));
        assert!(Arc::ptr_eq(&first, &engine(&engines, 1)));
        assert_eq!(first.in_flight(), 1);
        drop(work);
    }

    #[test]
    fn an_engine_that_is_given_by_its_url_stays() {
        let engines = engines(&["http://10.0.0.1:30000"]);
        engines.update(&[address(1), address(2)]);
        engines.update(&[address(2)]);
        assert_eq!(urls(&engines), expected(&[(1, false), (2, false)]));
    }
}
