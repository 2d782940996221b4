//! Ends of sessions and of the host processes that ran them.

use super::super::processes::Ending;
use super::Hosts;
use crate::wire::{Ended, Fault, FromShim, LoadFailure};

/// Host processes that may die one after the other without having run a session.
const MAX_IDLE_DEATHS: u32 = 5;

impl Hosts {
    pub(super) async fn on_ended(&mut self, id: u64, mut ended: Ended) {
        self.idle_deaths = 0;
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        if !live.sessions.remove(&ended.session_id) {
            return;
        }
        let killed_before = live.killed_before;
        if live.sessions.is_empty() && !live.retired {
            let ending = Ending {
                leader: live.host.pid,
                mark: live.host.mark.clone(),
                keep: live.keep.clone(),
            };
            ended.clean = self.config.processes.end(&ending).await;
        }
        if !ended.is_well() && self.config.memory.kills() > killed_before {
            ended = ended.out_of_memory();
        }
        self.tell(FromShim::ended(ended));
        self.kill_if_unneeded(id);
    }

    /// No new session for this process.
    pub(super) fn retire(&mut self, id: u64) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        live.retired = true;
        if self.current == Some(id) {
            self.start_host();
        }
        self.kill_if_unneeded(id);
    }

    fn kill_if_unneeded(&self, id: u64) {
        if let Some(live) = self.live.get(&id)
            && live.retired
            && live.sessions.is_empty()
        {
            live.host.kill();
        }
    }

    pub(super) fn on_exited(
        &mut self,
        id: u64,
        how: &str,
        signal: Option<i32>,
        log_tail: Option<String>,
        clean: bool,
    ) {
        let Some(live) = self.live.remove(&id) else {
            return;
        };
        for session_id in &live.sessions {
            let ended = Ended {
                session_id: session_id.clone(),
                signal,
                error: Some(how.to_owned()),
                log_tail: log_tail.clone(),
                fault: Fault::Agent,
                clean,
                ..Ended::default()
            };
            // Alone, the session killed its process, or used up its memory; among others, nobody knows who did.
            self.tell(FromShim::ended(if live.sessions.len() > 1 {
                ended.shared_death()
            } else if self.config.memory.kills() > live.killed_before {
                ended.out_of_memory()
            } else {
                ended
            }));
        }
        if let Some(start) = &live.meant_for {
            let error = format!("{how} while the agent was loaded");
            self.tell(FromShim::ended(Ended::infra(&start.session_id, error)));
        }
        for report in self.aborts.host_died(id, how) {
            self.tell(FromShim::AbortDone(report));
        }
        if self.current != Some(id) {
            return;
        }
        let last_words = log_tail
            .map(|tail| format!("; it printed: {}", last_lines(&tail)))
            .unwrap_or_default();
        if !live.ready {
            let error = format!("{how} while the agent was loaded{last_words}");
            return self.fail(LoadFailure::unexplained(error));
        }
        self.idle_deaths = if live.sessions.is_empty() {
            self.idle_deaths + 1
        } else {
            0
        };
        if self.idle_deaths >= MAX_IDLE_DEATHS {
            let error = format!("{how}, again and again, without running a session{last_words}");
            return self.fail(LoadFailure::unexplained(error));
        }
        tracing::warn!(how, "the Python host is started again");
        self.start_host();
    }
}

/// The end of a text, for a message.
fn last_lines(text: &str) -> &str {
    let start = text
        .char_indices()
        .rev()
        .nth(999)
        .map_or(0, |(index, _)| index);
    text[start..].trim()
}
