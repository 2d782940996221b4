//! The part of SGLang between HTTP and the scheduler: request ids, the pause gate, weight updates, aborts, lost clients.
//!
//! **Guarantees**: one task drives all requests; a request in flight is an entry in a table. An entry lives until its request
//! ended in the scheduler, whether its client is still there or not.
//!
//! **Behaviour kept from SGLang 0.5.23** (captures): a request that arrives while generation is paused waits at a gate in front of
//! the scheduler, without an answer, and an abort does not find it there; an abort by id is dropped unless that very id is known,
//! and then hits every id that begins with it; a client that left a plain request is noticed every 4 s, one that left a stream at once.

mod abort;
mod gate;
mod pump;
pub(crate) mod report;
mod submit;
mod weights;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::SimClock;
use crate::scheduler::{Event, Job, Key, Limits, Nanos, Outcome, Scheduler, Times};

pub(crate) use gate::PauseMode;
pub(crate) use submit::{Submission, SubmitError, Ticket};

/// How often SGLang looks whether the client of a plain request is still there.
const CLIENT_CHECK: Duration = Duration::from_secs(4);

/// The end of a request, as its handler gets it.
#[derive(Debug)]
pub(crate) enum Done {
    Finished(Box<Finished>),
    /// The waiting queue was full.
    QueueFull,
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) received: Nanos,
    pub(crate) dispatched: Nanos,
    /// Version of the weights at its end.
    pub(crate) version: Arc<str>,
    pub(crate) outcome: Outcome,
}

/// What a streaming handler sees of its request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    pub(crate) generated: usize,
    pub(crate) times: Times,
    pub(crate) done: Option<Arc<Done>>,
}

#[derive(Debug)]
enum Reply {
    Once(oneshot::Sender<Done>),
    Stream(watch::Sender<Progress>),
}

#[derive(Debug)]
struct Entry {
    rid: Arc<str>,
    reply: Reply,
    received: Nanos,
    dispatched: Nanos,
    /// The job, while the request waits at the gate.
    gated: Option<Job>,
    client_gone: bool,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    entries: HashMap<Key, Entry>,
    rids: BTreeMap<Arc<str>, Key>,
    gated: VecDeque<Key>,
    paused: bool,
    /// Weight updates that wait for requests to end, or are under way: they close the gate too.
    updates: usize,
    /// When the absence of a client will be noticed.
    leaving: BTreeSet<(Nanos, Key)>,
    next_key: Key,
    counts: report::Counts,
    model_path: String,
    served_model_name: String,
    unhealthy: bool,
    draining: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) clock: SimClock,
    state: Mutex<State>,
    wake: Arc<Notify>,
    /// Told whenever a request ended or the gate moved.
    changed: Notify,
    pump: OnceLock<AbortOnDropHandle<()>>,
    death: CancellationToken,
}

impl Engine {
    pub(crate) fn new(
        clock: SimClock,
        limits: Limits,
        version: &str,
        model_path: &str,
        served_model_name: &str,
    ) -> Self {
        let state = State {
            scheduler: Scheduler::new(limits, version.into()),
            entries: HashMap::new(),
            rids: BTreeMap::new(),
            gated: VecDeque::new(),
            paused: false,
            updates: 0,
            leaving: BTreeSet::new(),
            next_key: 0,
            counts: report::Counts::default(),
            model_path: model_path.to_owned(),
            served_model_name: served_model_name.to_owned(),
            unhealthy: false,
            draining: false,
        };
        Self {
            clock,
            state: Mutex::new(state),
            wake: Arc::new(Notify::new()),
            changed: Notify::new(),
            pump: OnceLock::new(),
            death: CancellationToken::new(),
        }
    }

    /// Acts on the state at the present time, then hands out what happened.
    fn act<R>(&self, action: impl FnOnce(&mut State, Nanos) -> R) -> R {
        let (result, ended) = {
            let mut state = self.state.lock();
            // under the lock, so that time never goes back
            let now = self.clock.now();
            let result = action(&mut state, now);
            (result, state.deliver(now))
        };
        if ended {
            self.changed.notify_waiters();
        }
        self.wake.notify_one();
        result
    }

    /// The end of the process: nothing is answered any more.
    pub(crate) fn die(&self, reason: &str) {
        tracing::warn!(reason, "the simulated engine dies");
        self.death.cancel();
    }

    /// Cancelled when the process is dead.
    pub(crate) fn death(&self) -> &CancellationToken {
        &self.death
    }
}

impl State {
    /// Hands out what the scheduler reports. Answers whether a request ended.
    fn deliver(&mut self, now: Nanos) -> bool {
        let mut ended = false;
        for event in self.scheduler.advance(now) {
            match event {
                Event::Progress {
                    key,
                    generated,
                    times,
                } => {
                    if let Some(Entry {
                        reply: Reply::Stream(sender),
                        ..
                    }) = self.entries.get(&key)
                    {
                        sender.send_replace(Progress {
                            generated,
                            times,
                            done: None,
                        });
                    }
                }
                Event::Finished { key, outcome } => {
                    ended = true;
                    self.finish(key, *outcome);
                }
            }
        }
        ended
    }

    fn finish(&mut self, key: Key, outcome: Outcome) {
        let Some(entry) = self.remove(key) else {
            return;
        };
        self.counts.finished(&entry.rid, &outcome);
        let (received, dispatched) = (entry.received, entry.dispatched);
        let version = self.scheduler.version().clone();
        entry.answer(Done::Finished(Box::new(Finished {
            received,
            dispatched,
            version,
            outcome,
        })));
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.rids.remove(&entry.rid);
        Some(entry)
    }
}

impl Entry {
    fn answer(self, done: Done) {
        match self.reply {
            // a client that left has no receiver
            Reply::Once(sender) => drop(sender.send(done)),
            Reply::Stream(sender) => sender.send_modify(|progress| {
                if let Done::Finished(finished) = &done {
                    progress.generated = finished.outcome.generated;
                    progress.times = finished.outcome.times;
                }
                progress.done = Some(Arc::new(done));
            }),
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self.reply, Reply::Stream(_))
    }
}
