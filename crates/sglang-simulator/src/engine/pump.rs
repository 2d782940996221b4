//! The one task that lets time pass.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{Engine, State};
use crate::scheduler::Nanos;

impl Engine {
    /// Starts the task with the first request. It ends with the engine.
    pub(super) fn start_pump(self: &Arc<Self>) {
        self.pump.get_or_init(|| {
            let (engine, wake) = (Arc::downgrade(self), self.wake.clone());
            let task = tokio::runtime::Handle::current().spawn(run(engine, wake));
            AbortOnDropHandle::new(task)
        });
    }

    /// Brings everything up to now, and answers when to come again.
    fn tick(&self) -> Option<Instant> {
        let (ended, next) = {
            let mut state = self.state.lock();
            let now = self.clock.now();
            state.notice_leavers(now);
            (state.deliver(now), state.next_wake())
        };
        if ended {
            self.changed.notify_waiters();
        }
        next.map(|at| self.clock.instant(at))
    }
}

impl State {
    fn notice_leavers(&mut self, now: Nanos) {
        while let Some((at, key)) = self.leaving.first().copied() {
            if at > now {
                return;
            }
            self.leaving.pop_first();
            self.scheduler.abort(key, now);
        }
    }

    fn next_wake(&self) -> Option<Nanos> {
        let leaver = self.leaving.first().map(|(at, _)| *at);
        [self.scheduler.next_wake(), leaver]
            .into_iter()
            .flatten()
            .min()
    }
}

async fn run(engine: Weak<Engine>, wake: Arc<Notify>) {
    loop {
        let next = match engine.upgrade() {
            Some(engine) => engine.tick(),
            None => return,
        };
        match next {
            Some(at) => tokio::select! {
                () = sleep_until(at) => {}
                () = wake.notified() => {}
            },
            None => wake.notified().await,
        }
    }
}
