//! Weight updates and versions.

use super::{Engine, State};

/// Keeps the gate closed for a weight update; opens it when dropped.
struct Update<'a>(&'a Engine);

impl Drop for Update<'_> {
    fn drop(&mut self) {
        self.0.act(|state, now| {
            state.updates -= 1;
            state.open_gate(now);
        });
    }
}

impl Engine {
    /// Waits until no request is in flight, new ones being held back meanwhile; a paused engine is updated under its requests.
    /// Then acts. As SGLang's lock, a waiting update goes before requests that come later.
    pub(crate) async fn update<R>(
        &self,
        abort_first: bool,
        update: impl FnOnce(&mut Weights<'_>) -> R,
    ) -> R {
        if abort_first {
            self.abort_all();
        }
        self.act(|state, _| state.updates += 1);
        let _gate = Update(self);
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.lock();
                if state.paused || state.dispatched() == 0 {
                    break;
                }
            }
            changed.await;
        }
        self.act(|state, now| update(&mut Weights { state, now }))
    }

    /// Changes the version only.
    pub(crate) fn set_version(&self, version: &str) {
        self.act(|state, now| Weights { state, now }.set_version(version));
    }

    /// Version, model path and served name in force.
    pub(crate) fn identity(&self) -> Identity {
        let state = self.state.lock();
        Identity {
            version: state.scheduler.version().to_string(),
            model_path: state.model_path.clone(),
            served_model_name: state.served_model_name.clone(),
        }
    }
}

/// What the engine serves.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) version: String,
    pub(crate) model_path: String,
    pub(crate) served_model_name: String,
}

/// The weights during an update.
pub(crate) struct Weights<'a> {
    state: &'a mut State,
    now: crate::scheduler::Nanos,
}

impl Weights<'_> {
    pub(crate) fn set_version(&mut self, version: &str) {
        self.state.scheduler.set_version(version.into(), self.now);
    }

    /// As SGLang does, the path becomes the served name too.
    pub(crate) fn set_model_path(&mut self, path: &str) {
        path.clone_into(&mut self.state.model_path);
        path.clone_into(&mut self.state.served_model_name);
    }

    pub(crate) fn flush(&mut self) -> bool {
        self.state.scheduler.flush(self.now)
    }
}
