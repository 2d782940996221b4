//! Asks external engines what they are and what they can do.
//!
//! One task per pool, every five seconds, with a deadline per question: never on a reconcile's path. What it learned is read without waiting;
//! a change puts the pool into the queue. A task ends with its pool. Engines that want a key are asked by a Pod of the pool that has it
//! (`rollout-operator survey`), with the same code; the controller asks that Pod.
//!
//! Caveats: names are looked up as the routers do it, by the resolver of this process; a controller outside of the cluster finds no Services.

mod probe;
mod remote;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use remote::Remote;

pub use survey::{Credentials, CredentialsNow, Surveyor};

use crate::plan::pool::external::Survey;
use crate::resources::pool::EngineList;

/// The pools whose engines are asked, by UID.
#[derive(Default)]
pub struct Surveys {
    running: Mutex<HashMap<String, Running>>,
}

struct Running {
    wanted: Wanted,
    known: Known,
    /// Its task, which ends with the entry.
    tasks: JoinSet<()>,
}

impl Running {
    fn has_ended(&mut self) -> bool {
        self.tasks.try_join_next().is_some() || self.tasks.is_empty()
    }
}

/// Who asks the engines, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This process: they answer everybody.
    Here {
        engines: EngineList,
        /// Who vouches for those behind https.
        ca: Option<String>,
    },
    /// The Pod that has their key, at this base URL.
    ByPod { address: String },
}

#[derive(Clone)]
enum Known {
    Here(Arc<Surveyor>),
    ByPod(Arc<Mutex<Survey>>),
}

impl Known {
    fn survey(&self) -> Survey {
        match self {
            Self::Here(surveyor) => surveyor.survey(),
            Self::ByPod(heard) => heard.lock().clone(),
        }
    }
}

impl Surveys {
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
        let before = running.get(uid);
        if let Some(one) = before.filter(|one| one.wanted == wanted) {
            return one.known.survey();
        }
        let mut tasks = JoinSet::new();
        let known = match &wanted {
            Wanted::Here { engines, ca } => {
                let credentials = Credentials {
                    key: None,
                    ca: ca.clone(),
                };
                let now = Box::new(move || Ok(credentials.clone()));
                let surveyor = Arc::new(Surveyor::new(engines.clone(), now));
                let asks = Arc::clone(&surveyor);
                tasks.spawn(async move { asks.run(is_there, changed).await });
                Known::Here(surveyor)
            }
            Wanted::ByPod { address } => {
                // Another Pod asks the same engines.
                let heard = match before.map(|one| &one.known) {
                    Some(Known::ByPod(heard)) => Arc::clone(heard),
                    _ => Arc::default(),
                };
                let (remote, keeps) = (Remote::new(address), Arc::clone(&heard));
                tasks.spawn(async move { remote.run(&keeps, is_there, changed).await });
                Known::ByPod(heard)
            }
        };
        let survey = known.survey();
        let one = Running {
            wanted,
            known,
            tasks,
        };
        running.insert(uid.to_owned(), one);
        survey
    }

    /// What was known of a pool's engines last.
    pub(super) fn last(&self, uid: &str) -> Option<Survey> {
        Some(self.running.lock().get(uid)?.known.survey())
    }

    /// Asks a pool's engines no more.
    pub(super) fn forget(&self, uid: &str) {
        self.running.lock().remove(uid);
    }
}
