//! The gate in front of the scheduler: pausing, continuing, flushing, and being healthy.

use std::time::Duration;

use super::{Engine, State};
use crate::scheduler::{Load, Nanos, Pause};

/// `mode` of `/pause_generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseMode {
    Abort,
    Retract,
    InPlace,
}

impl State {
    pub(super) fn is_gate_closed(&self) -> bool {
        self.paused || self.updates > 0
    }

    /// Lets everybody through, unless something else keeps the gate closed.
    pub(super) fn open_gate(&mut self, now: Nanos) {
        if self.is_gate_closed() {
            return;
        }
        while let Some(key) = self.gated.pop_front() {
            self.dispatch(key, now);
        }
    }

    /// Requests between the gate and their end.
    pub(super) fn dispatched(&self) -> usize {
        self.entries.len() - self.gated.len()
    }
}

impl Engine {
    /// Closes the gate. `Abort` then aborts everything, every second, until nothing is in flight; the other modes stop the scheduler.
    pub(crate) async fn pause(&self, mode: PauseMode) {
        self.act(|state, now| {
            state.paused = true;
            match mode {
                PauseMode::Abort => {}
                PauseMode::Retract => state.scheduler.pause(Pause::Retract, now),
                PauseMode::InPlace => state.scheduler.pause(Pause::InPlace, now),
            }
        });
        if mode != PauseMode::Abort {
            return;
        }
        loop {
            self.abort_all();
            if self.state.lock().dispatched() == 0 {
                return;
            }
            self.clock.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Opens the gate.
    pub(crate) fn resume(&self) {
        self.act(|state, now| {
            state.paused = false;
            // those at the gate are in the queue before the scheduler goes on
            state.open_gate(now);
            state.scheduler.resume(now);
        });
        self.changed.notify_waiters();
    }

    /// Empties the prefix cache, waiting up to `timeout` for the engine to be free. Answers whether it did.
    pub(crate) async fn flush(&self, timeout: Duration) -> bool {
        let every = Duration::from_millis(50);
        let mut waited = Duration::ZERO;
        loop {
            if self.act(|state, now| state.scheduler.flush(now)) {
                return true;
            }
            if waited >= timeout {
                return false;
            }
            self.clock.sleep(every).await;
            waited += every;
        }
    }

    /// Whether the engine would answer a request now.
    pub(crate) fn is_answering(&self) -> bool {
        let state = self.state.lock();
        !state.is_gate_closed() && !state.scheduler.is_paused()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state.lock().paused
    }

    pub(crate) fn set_unhealthy(&self, unhealthy: bool) {
        self.state.lock().unhealthy = unhealthy;
    }

    pub(crate) fn is_unhealthy(&self) -> bool {
        self.state.lock().unhealthy
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state.lock().draining
    }

    /// From now on health says no; ends when nothing is in flight.
    pub(crate) async fn drain(&self) {
        self.state.lock().draining = true;
        loop {
            let changed = self.changed.notified();
            if self.state.lock().entries.is_empty() || self.is_unhealthy() {
                return;
            }
            changed.await;
        }
    }

    /// Whether the scheduler has nothing at all.
    pub(crate) fn is_idle(&self) -> bool {
        self.act(|state, _| state.scheduler.is_idle())
    }

    /// The last published load.
    pub(crate) fn load(&self) -> Load {
        self.act(|state, now| state.scheduler.load(now))
    }
}
