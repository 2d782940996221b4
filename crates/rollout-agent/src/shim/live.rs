//! A running host process and the sessions in it.

use std::collections::HashSet;

use super::host::Host;
use crate::wire::{FromLauncher, Start};

#[derive(Debug)]
pub(super) struct Live {
    pub(super) host: Host,
    pub(super) ready: bool,
    /// It gets no new session.
    pub(super) retired: bool,
    pub(super) sessions: HashSet<String>,
    /// The one session that it is started for, until it is ready.
    pub(super) meant_for: Option<Start>,
    /// It has run a session; what that started elsewhere may still be there.
    pub(super) worked: bool,
    /// The processes below it when it became ready: its own, not a session's.
    pub(super) keep: HashSet<i32>,
    /// Processes that had been killed for want of memory when its last session began.
    pub(super) killed_before: u64,
}

impl Live {
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            ready: false,
            retired: false,
            sessions: HashSet::new(),
            meant_for: None,
            worked: false,
            keep: HashSet::new(),
            killed_before: 0,
        }
    }

    /// Starts a session in it. So many processes have been killed for want of memory.
    pub(super) fn start(&mut self, start: Start, killed: u64) {
        self.killed_before = killed;
        self.sessions.insert(start.session_id.clone());
        self.worked = true;
        self.host.tell(FromLauncher::Start(Box::new(start)));
    }
}
