//! Asks the sidecars of a pool's own engines how those are (docs/protocol.md section 6).
//!
//! One task per pool, every five seconds, with a deadline per question and for as many engines as a status lists. What it learned is read
//! without waiting; a look that shows something new puts the pool into the queue, once. A sidecar that is silent for three looks says nothing any
//! more: a status does not change with every answer that is late.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use engine_http::{Asker, Question, Trust};
use futures_util::{StreamExt, stream};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinSet;

use super::looks::Looks;
use crate::plan::pool::EngineState;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest wait for an answer: the sidecar itself waits two seconds for its engine.
const LIMIT: Duration = Duration::from_secs(4);
/// Longest answer that is read.
const LONGEST: usize = 64 << 10;
/// Sidecars that are asked at once.
const AT_ONCE: usize = 16;
/// Looks in a row without an answer after which nothing is known any more.
const SILENCE: u8 = 3;
/// Longest text of an engine that is told on.
const LONGEST_TEXT: usize = 256;
/// Longest sentence of that kind.
const LONGEST_SENTENCE: usize = 1024;

/// The pools whose sidecars are asked, by UID.
pub struct States {
    asker: Asker,
    running: Mutex<HashMap<String, Running>>,
}

struct Running {
    known: Arc<Known>,
    /// Its task, which ends with the entry.
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Known {
    /// Base URLs of sidecars, by the names of their Pods.
    asked: Mutex<BTreeMap<String, String>>,
    heard: Mutex<BTreeMap<String, Heard>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    /// None: it may still answer for the first time.
    state: Option<EngineState>,
    /// Looks in a row without an answer.
    silent: u8,
}

/// A sidecar's answer; what it does not know is null.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    version: Option<String>,
    paused: Option<bool>,
    server_version: Option<String>,
    trouble: Option<String>,
}

impl Default for States {
    fn default() -> Self {
        Self {
            asker: Asker::new(CONNECT, Trust::public(), LONGEST),
            running: Mutex::default(),
        }
    }
}

impl States {
    /// Asks these sidecars from now on, as long as `is_there`; answers what is known. `changed` is called after each look with news.
    pub(super) fn of(
        &self,
        uid: &str,
        sidecars: BTreeMap<String, String>,
        is_there: impl Fn() -> bool + Send + 'static,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> BTreeMap<String, EngineState> {
        let mut running = self.running.lock();
        // Pools that are gone.
        running.retain(|_, one| one.tasks.try_join_next().is_none());
        if let Some(one) = running.get(uid) {
            *one.known.asked.lock() = sidecars;
            return one.known.states();
        }
        if sidecars.is_empty() {
            return BTreeMap::new();
        }
        let known = Arc::new(Known::default());
        *known.asked.lock() = sidecars;
        let mut tasks = JoinSet::new();
        let (asker, state) = (self.asker.clone(), Arc::clone(&known));
        tasks.spawn(async move { state.run(&asker, is_there, changed).await });
        let one = Running { known, tasks };
        running.insert(uid.to_owned(), one);
        BTreeMap::new()
    }

    /// Asks a pool's sidecars no more.
    pub(super) fn forget(&self, uid: &str) {
        self.running.lock().remove(uid);
    }
}

impl Known {
    /// What is known of those that are asked; of one that fell silent, that nothing is.
    fn states(&self) -> BTreeMap<String, EngineState> {
        let (asked, heard) = (self.asked.lock(), self.heard.lock());
        let known = asked.keys().filter_map(|name| {
            let heard = heard.get(name)?;
            Some((name.clone(), heard.state.clone()?))
        });
        known.collect()
    }

    async fn run(&self, asker: &Asker, is_there: impl Fn() -> bool, changed: impl Fn()) {
        let mut looks = Looks::new(is_there);
        while looks.go_on().await {
            if self.look(asker).await {
                changed();
            }
        }
    }

    /// Asks all of them; answers whether something is new.
    async fn look(&self, asker: &Asker) -> bool {
        let sidecars = self.asked.lock().clone();
        let answers: Vec<_> = stream::iter(sidecars)
            .map(|(name, url)| async move { (name, ask(asker, &url).await) })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let before = self.states();
        let mut heard = self.heard.lock();
        // Pods that are gone.
        heard.retain(|name, _| answers.iter().any(|(answered, _)| answered == name));
        for (name, answer) in answers {
            match answer {
                Some(state) => {
                    let state = Some(state);
                    heard.insert(name, Heard { state, silent: 0 });
                }
                None => miss(&mut heard, &name),
            }
        }
        drop(heard);
        self.states() != before
    }
}

/// One look without an answer changes nothing.
fn miss(heard: &mut BTreeMap<String, Heard>, name: &str) {
    let one = heard.entry(name.to_owned()).or_insert_with(|| Heard {
        state: None,
        silent: 0,
    });
    one.silent = one.silent.saturating_add(1);
    if one.silent >= SILENCE {
        one.state = Some(EngineState::default());
    }
}

async fn ask(asker: &Asker, url: &str) -> Option<EngineState> {
    let question = Question {
        method: Method::GET,
        url: &format!("{url}/state"),
        body: None,
        within: LIMIT,
    };
    let (status, body) = asker.ask(question).await.ok()?;
    if status != StatusCode::OK {
        return None;
    }
    let answer: Answer = serde_json::from_slice(&body).ok()?;
    Some(EngineState {
        weight_version: answer.version.map(|text| shorten(text, LONGEST_TEXT)),
        version: answer
            .server_version
            .map(|text| shorten(text, LONGEST_TEXT)),
        paused: answer.paused.unwrap_or(false),
        trouble: answer.trouble.map(|text| shorten(text, LONGEST_SENTENCE)),
    })
}

fn shorten(mut text: String, longest: usize) -> String {
    text.truncate(text.floor_char_boundary(longest));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use axum::routing::get;
    use engine_http::{Asker, Trust};
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::{CONNECT, EngineState, Known, LONGEST, SILENCE};

    /// A sidecar that says what it is told to say.
    async fn sidecar(says: Arc<Mutex<Option<Value>>>) -> (String, JoinSet<()>) {
        let routes = axum::Router::new().route(
            "/state",
            get(move || async move {
                let says = says.lock().clone();
                says.map(axum::Json)
                    .ok_or(axum::http::StatusCode::INTERNAL_SERVER_ERROR)
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (url, serving)
    }

    #[tokio::test]
    async fn news_is_told_once_and_silence_after_three_looks() {
        let says = Arc::new(Mutex::new(Some(
            json!({"version": "7", "paused": null, "server_version": "0.5.23", "more": 1}),
        )));
        let (url, _serving) = sidecar(Arc::clone(&says)).await;
        let asker = Asker::new(CONNECT, Trust::public(), LONGEST);
        let known = Known::default();
        *known.asked.lock() = BTreeMap::from([("a".to_owned(), url)]);
        assert!(known.look(&asker).await);
        assert!(!known.look(&asker).await);
        let mut state = EngineState {
            weight_version: Some("7".to_owned()),
            version: Some("0.5.23".to_owned()),
            paused: false,
            trouble: None,
        };
        assert_eq!(known.states()["a"], state);
        *says.lock() = Some(json!({"version": "8", "paused": true, "server_version": "0.5.23"}));
        assert!(known.look(&asker).await);
        state.weight_version = Some("8".to_owned());
        state.paused = true;
        assert_eq!(known.states()["a"], state);
        *says.lock() = None;
        for _ in 1..SILENCE {
            assert!(!known.look(&asker).await);
        }
        assert_eq!(known.states()["a"], state);
        assert!(known.look(&asker).await);
        assert_eq!(known.states()["a"], EngineState::default());
        assert!(!known.look(&asker).await);
    }

    #[tokio::test]
    async fn a_pod_that_is_gone_is_forgotten() {
        let says = Arc::new(Mutex::new(Some(json!({"version": "7"}))));
        let (url, _serving) = sidecar(says).await;
        let asker = Asker::new(CONNECT, Trust::public(), LONGEST);
        let known = Known::default();
        *known.asked.lock() = BTreeMap::from([("a".to_owned(), url)]);
        assert!(known.look(&asker).await);
        known.asked.lock().clear();
        assert!(known.states().is_empty());
        // The reconcile that took it out is the one that writes so.
        assert!(!known.look(&asker).await);
        assert!(known.heard.lock().is_empty());
    }
}
