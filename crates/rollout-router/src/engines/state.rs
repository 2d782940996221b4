//! What the sidecars of a pool's engines say (docs/protocol.md section 6): a pause that somebody else made, and a drain before it is in DNS.
//!
//! Every engine that was found is asked every two seconds, with a deadline. An engine that is about to leave gets nothing new; one that is
//! paused only when the others are no better: what it is sent waits until it goes on. A sidecar that is silent three times says nothing any more.
//!
//! Caveat: a session keeps its engine while that is paused, for the prefix cache's sake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use futures_util::stream::{self, StreamExt};
use serde::Deserialize;

use super::engine::{Engine, Origin};
use super::{Engines, Upstream};

/// Sidecars that are asked at once.
const AT_ONCE: usize = 64;
/// Questions in a row without an answer after which the last word counts no more.
const SILENCE: u8 = 3;

/// What an engine's sidecar said last.
#[derive(Debug, Default)]
pub(super) struct Told {
    paused: AtomicBool,
    draining: AtomicBool,
    misses: AtomicU8,
}

/// A sidecar's answer; what it does not know is null.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct State {
    version: Option<String>,
    paused: Option<bool>,
    draining: Option<bool>,
}

impl Told {
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Takes a word over; answers whether it changed anything. What is not known stays as it was.
    fn hear(&self, state: &State) -> bool {
        self.misses.store(0, Ordering::Relaxed);
        let turn = |flag: &AtomicBool, now: Option<bool>| {
            now.is_some_and(|now| flag.swap(now, Ordering::SeqCst) != now)
        };
        turn(&self.paused, state.paused) | turn(&self.draining, state.draining)
    }

    /// There was none; answers whether that changed anything.
    fn miss(&self) -> bool {
        let misses = self.misses.load(Ordering::Relaxed).saturating_add(1);
        self.misses.store(misses, Ordering::Relaxed);
        let forgets = misses >= SILENCE;
        let forget = |flag: &AtomicBool| forgets && flag.swap(false, Ordering::SeqCst);
        forget(&self.paused) | forget(&self.draining)
    }
}

/// Asks until it is dropped.
pub(crate) async fn run(engines: Arc<Engines>, upstream: Upstream, port: u16) {
    let period = upstream.times().lookup;
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let grown = engines.grown().notified();
        tokio::pin!(grown);
        grown.as_mut().enable();
        let all = engines.all();
        let found = all.iter().filter(|engine| engine.origin() == Origin::Found);
        stream::iter(found)
            .for_each_concurrent(AT_ONCE, |engine| ask(engine, &upstream, port))
            .await;
        // A new engine is asked at once: it may be paused already.
        tokio::select! {
            _ = ticks.tick() => {}
            () = grown => {}
        }
    }
}

async fn ask(engine: &Engine, upstream: &Upstream, port: u16) {
    let limit = upstream.times().lookup;
    let told = engine.told();
    let answer = upstream.state(engine, port, limit).await.ok();
    let state = answer.and_then(|body| serde_json::from_slice::<State>(&body).ok());
    let is_news = match &state {
        Some(state) => told.hear(state),
        None => told.miss(),
    };
    if let Some(version) = state.and_then(|state| state.version) {
        engine.note_weight_version(&version);
    }
    if is_news {
        let (paused, draining) = (told.is_paused(), told.is_draining());
        tracing::info!(
            engine = engine.url(),
            paused,
            draining,
            "an engine's state changed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{SILENCE, State, Told};

    fn state(text: &str) -> State {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let told = Told::default();
        assert!(told.hear(&state(
            r#"{"paused": true, "draining": true, "version": "7"}"#
        )));
        assert!(!told.hear(&state(r#"{"paused": null, "more": 1}"#)));
        assert!(told.is_paused() && told.is_draining());
        assert!(told.hear(&state(r#"{"paused": false}"#)));
        assert!(!told.is_paused() && told.is_draining());
    }

    #[test]
    fn a_sidecar_that_is_gone_says_nothing_after_a_while() {
        let told = Told::default();
        told.hear(&state(r#"{"paused": true, "draining": true}"#));
        for _ in 1..SILENCE {
            assert!(!told.miss());
        }
        told.hear(&State::default());
        for _ in 1..SILENCE {
            assert!(!told.miss());
        }
        assert!(told.is_paused());
        assert!(told.miss());
        assert!(!told.is_paused() && !told.is_draining());
        assert!(!told.miss());
    }
}
