//! From a handler into the scheduler, and the handler's side of a request in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::{CLIENT_CHECK, Done, Engine, Entry, Progress, Reply, State};
use crate::replies::Output;
use crate::scheduler::{Job, Key, Nanos};

/// A request for one output.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) rid: Arc<str>,
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) output: Output,
    pub(crate) streaming: bool,
    pub(crate) cacheable: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SubmitError {
    /// A request with this id is in flight.
    DuplicateRid(Arc<str>),
    /// Several of the requests have these ids.
    RepeatedRids(Vec<Arc<str>>),
}

/// A request in flight, as its handler holds it. Dropping it is what a lost client looks like.
#[derive(Debug)]
pub(crate) struct Ticket {
    key: Key,
    engine: Arc<Engine>,
    wait: Wait,
    /// What a stream needs to show its tokens before their end.
    job: Job,
    finished: bool,
}

#[derive(Debug)]
enum Wait {
    Once(oneshot::Receiver<Done>),
    Stream(watch::Receiver<Progress>),
}

impl Engine {
    /// Registers requests and hands them to the scheduler, or to the gate. All or none.
    pub(crate) fn submit(
        self: &Arc<Self>,
        submissions: Vec<Submission>,
    ) -> Result<Vec<Ticket>, SubmitError> {
        self.start_pump();
        let engine = self.clone();
        self.act(|state, now| {
            let repeated = repeated_rids(&submissions);
            if !repeated.is_empty() {
                return Err(SubmitError::RepeatedRids(repeated));
            }
            if let Some(known) = submissions
                .iter()
                .find(|one| state.rids.contains_key(&one.rid))
            {
                return Err(SubmitError::DuplicateRid(known.rid.clone()));
            }
            Ok(submissions
                .into_iter()
                .map(|submission| {
                    let (job, wait) = state.register(submission, now);
                    Ticket {
                        key: job.key,
                        engine: engine.clone(),
                        wait,
                        job,
                        finished: false,
                    }
                })
                .collect())
        })
    }
}

fn repeated_rids(submissions: &[Submission]) -> Vec<Arc<str>> {
    let mut counts = BTreeMap::<&Arc<str>, usize>::new();
    for submission in submissions {
        *counts.entry(&submission.rid).or_default() += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(rid, _)| rid.clone())
        .collect()
}

impl State {
    fn register(&mut self, submission: Submission, now: Nanos) -> (Job, Wait) {
        let key = self.next_key;
        self.next_key += 1;
        let (reply, wait) = if submission.streaming {
            let (sender, receiver) = watch::channel(Progress::default());
            (Reply::Stream(sender), Wait::Stream(receiver))
        } else {
            let (sender, receiver) = oneshot::channel();
            (Reply::Once(sender), Wait::Once(receiver))
        };
        let job = Job {
            key,
            prompt: submission.prompt,
            output: submission.output,
            streaming: submission.streaming,
            cacheable: submission.cacheable,
        };
        self.rids.insert(submission.rid.clone(), key);
        let entry = Entry {
            rid: submission.rid,
            reply,
            received: now,
            dispatched: now,
            gated: Some(job.clone()),
            client_gone: false,
        };
        self.entries.insert(key, entry);
        if self.is_gate_closed() {
            self.gated.push_back(key);
        } else {
            self.dispatch(key, now);
        }
        (job, wait)
    }

    /// Hands a request to the scheduler.
    pub(super) fn dispatch(&mut self, key: Key, now: Nanos) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(job) = entry.gated.take() else {
            return;
        };
        entry.dispatched = now;
        let gone = entry.client_gone.then(|| entry.is_stream());
        if self.scheduler.is_queue_full() {
            self.counts.rejected += 1;
            if let Some(entry) = self.remove(key) {
                entry.answer(Done::QueueFull);
            }
            return;
        }
        self.scheduler.submit(job, now);
        if let Some(streaming) = gone {
            self.expect_leave(key, streaming, now, now);
        }
    }

    fn client_left(&mut self, key: Key, now: Nanos) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.client_gone = true;
        if entry.gated.is_none() {
            let (streaming, dispatched) = (entry.is_stream(), entry.dispatched);
            self.expect_leave(key, streaming, dispatched, now);
        }
    }

    /// A stream fails at its next chunk; a plain request is looked at every so often.
    fn expect_leave(&mut self, key: Key, streaming: bool, dispatched: Nanos, now: Nanos) {
        self.counts.clients_left += 1;
        if streaming {
            self.scheduler.abort(key, now);
            return;
        }
        let every = u64::try_from(CLIENT_CHECK.as_nanos()).unwrap_or(u64::MAX);
        let checks = (now - dispatched) / every + 1;
        self.leaving.insert((dispatched + checks * every, key));
    }
}

impl Ticket {
    /// What was asked.
    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Waits for the end of a plain request. `None`: the engine died.
    pub(crate) async fn done(mut self) -> Option<Done> {
        let Wait::Once(receiver) = &mut self.wait else {
            return None;
        };
        let engine = self.engine.clone();
        let done = tokio::select! {
            done = receiver => done.ok(),
            () = engine.death().cancelled() => None,
        };
        self.finished = true;
        done
    }

    /// Waits until a streamed request has more tokens than `known`, or ended. `None`: the engine died.
    pub(crate) async fn progress(&mut self, known: usize) -> Option<Progress> {
        let Wait::Stream(receiver) = &mut self.wait else {
            return None;
        };
        let engine = self.engine.clone();
        let progress = tokio::select! {
            progress = receiver.wait_for(|progress| progress.generated > known || progress.done.is_some()) => {
                progress.ok().map(|progress| progress.clone())
            }
            () = engine.death().cancelled() => None,
        };
        self.finished = progress
            .as_ref()
            .is_none_or(|progress| progress.done.is_some());
        progress
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            self.engine
                .act(|state, now| state.client_left(self.key, now));
        }
    }
}
