//! Sessions with a process of their own: one that was in processes that died harms nobody there, and is known when it does it again.
//!
//! Such a process takes no other session and goes with its own. What it costs is a load of the agent and its memory, for as long as
//! the session lasts; a launcher has at most as many as it may run sessions at once.

use super::Hosts;
use crate::wire::{Ended, FromShim, Start};

impl Hosts {
    pub(super) fn start_alone(&mut self, start: Start) {
        match self.new_host() {
            Ok(mut live) => {
                live.retired = true;
                live.meant_for = Some(start);
                self.live.insert(live.host.id, live);
            }
            Err(error) => {
                let error = format!("a process of its own cannot be started: {error}");
                self.tell(FromShim::ended(Ended::infra(&start.session_id, error)));
            }
        }
    }

    /// Gives up a session whose process is not ready. Answers whether there was one.
    pub(super) fn forget_alone(&mut self, session_id: &str) -> bool {
        let mut loading = self.live.values_mut();
        let Some(live) = loading.find(|live| {
            let start = live.meant_for.as_ref();
            start.is_some_and(|start| start.session_id == session_id)
        }) else {
            return false;
        };
        live.meant_for = None;
        live.host.kill();
        true
    }
}
