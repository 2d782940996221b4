//! Ends requests at the engines.
//!
//! An abort call only says that the engine was told: SGLang drops an abort that overtakes its request, and a paused engine acts on it
//! when it continues. So the call is repeated until the request's own terminal reply, or a deadline. Engines are independent: a dead
//! one holds up nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engines::{Engine, Upstream};
use crate::flights::{Flights, Sent, Ticket};
use crate::last_call::LastCall;

/// What became of the requests of one engine. `aborted`, `left` and `unproven` add up to all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EngineReport {
    pub(crate) url: String,
    /// Ended with a terminal reply.
    pub(crate) aborted: usize,
    /// Neither ended, nor could the engine be told.
    pub(crate) left: usize,
    /// The engine was told, or the connection is gone, but no terminal reply came.
    pub(crate) unproven: usize,
    /// Until the engine had been told of all of them; `None` when it could not be.
    pub(crate) told_millis: Option<u64>,
    pub(crate) millis: u64,
    pub(crate) error: Option<String>,
}

/// Aborts requests, in the foreground or in the background.
#[derive(Debug, Clone)]
pub(crate) struct Aborter {
    pub(crate) upstream: Upstream,
    pub(crate) flights: Arc<Flights>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stopping: CancellationToken,
    pub(crate) last_call: Arc<LastCall>,
    pub(crate) repeat: Duration,
    pub(crate) orphan: Duration,
}

/// How long a request is aborted again and again.
const LONGEST: Duration = Duration::from_hours(1);

/// What has happened at one engine so far.
#[derive(Debug, Default)]
struct Progress {
    told: Mutex<Option<Duration>>,
    last_error: Mutex<Option<String>>,
}

struct Target {
    sent: Sent,
    told: AtomicBool,
}

impl Aborter {
    /// Aborts until all have ended, or the deadline.
    pub(crate) async fn abort_until_ended(
        &self,
        sent: Vec<Sent>,
        within: Duration,
    ) -> Vec<EngineReport> {
        let deadline = Instant::now() + within;
        let mut calls = Vec::new();
        for (engine, targets) in by_engine(sent) {
            calls.push(self.abort_at(engine, targets, deadline));
        }
        join_all(calls).await
    }

    /// Aborts requests that nobody waits for.
    pub(crate) fn abort_in_background(&self, sent: Vec<Sent>) {
        self.abort_later(sent, self.orphan);
    }

    /// Goes on aborting what a fence could not end in its time: a request at the gate of a paused engine would else run when the
    /// engine continues.
    pub(crate) fn keep_aborting(&self, sent: Vec<Sent>) {
        let mut open = sent;
        open.retain(|sent| self.flights.is_open(sent.number));
        self.abort_later(open, LONGEST);
    }

    fn abort_later(&self, sent: Vec<Sent>, within: Duration) {
        if sent.is_empty() {
            return;
        }
        let aborter = self.clone();
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            let aborts = aborter.abort_until_ended(sent, within);
            stopping.run_until_cancelled(aborts).await;
        });
    }

    /// Aborts a request whose client is gone and whose connection was closed: it stays registered until its engine was told, or does
    /// not listen.
    pub(crate) fn orphaned(&self, ticket: Ticket) {
        let Some(sent) = ticket.sent() else { return };
        let aborter = self.clone();
        self.tasks.spawn(async move {
            let told = tokio::time::timeout(aborter.orphan, aborter.tell(&sent)).await;
            if let Err(error) = told.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                tracing::warn!(engine = sent.engine.url(), %error, "abort of an abandoned request failed");
            }
            drop(ticket);
        });
    }

    async fn abort_at(
        &self,
        engine: Arc<Engine>,
        targets: Vec<Target>,
        deadline: Instant,
    ) -> EngineReport {
        let started = Instant::now();
        let progress = Progress::default();
        let rounds = self.abort_in_rounds(&targets, started, &progress);
        let numbers: Vec<u64> = targets.iter().map(|target| target.sent.number).collect();
        // A round whose calls hang ends with the deadline, or with the requests.
        tokio::select! {
            _ = tokio::time::timeout_at(deadline, rounds) => {}
            () = self.flights.wait_for_end(&numbers) => {}
            () = self.last_call.reports_due() => {}
        }
        if targets.iter().all(|target| self.is_told(target)) {
            progress.told.lock().get_or_insert(started.elapsed());
        }
        let mut report = EngineReport {
            url: engine.url().to_owned(),
            aborted: 0,
            left: 0,
            unproven: 0,
            told_millis: progress.told.into_inner().map(millis),
            millis: millis(started.elapsed()),
            error: progress.last_error.into_inner(),
        };
        for target in &targets {
            let open = self.flights.is_open(target.sent.number);
            let told = target.told.load(Ordering::Relaxed);
            let count = if open && !told {
                &mut report.left
            } else if open || self.flights.is_unproven(target.sent.number) {
                &mut report.unproven
            } else {
                &mut report.aborted
            };
            *count += 1;
        }
        report
    }

    async fn abort_in_rounds(&self, targets: &[Target], started: Instant, progress: &Progress) {
        loop {
            let open: Vec<&Target> = targets
                .iter()
                .filter(|target| self.flights.is_open(target.sent.number))
                .collect();
            if open.is_empty() {
                return;
            }
            let mut calls = Vec::with_capacity(open.len());
            for target in &open {
                calls.push(self.tell_target(target, &progress.last_error));
            }
            join_all(calls).await;
            if targets.iter().all(|target| self.is_told(target)) {
                progress.told.lock().get_or_insert(started.elapsed());
            }
            let numbers: Vec<u64> = open.iter().map(|target| target.sent.number).collect();
            let ended = self.flights.wait_for_end(&numbers);
            if tokio::time::timeout(self.repeat, ended).await.is_ok() {
                return;
            }
        }
    }

    /// Whether the engine knows, or has no need to.
    fn is_told(&self, target: &Target) -> bool {
        target.told.load(Ordering::Relaxed) || !self.flights.is_open(target.sent.number)
    }

    async fn tell_target(&self, target: &Target, last_error: &Mutex<Option<String>>) {
        match self.tell(&target.sent).await {
            Ok(()) => target.told.store(true, Ordering::Relaxed),
            Err(error) => *last_error.lock() = Some(error),
        }
    }

    /// Tells the engine once. A request that has ended in the meantime needs no call.
    async fn tell(&self, sent: &Sent) -> Result<(), String> {
        for rid in sent.rids.iter() {
            let permit = sent.engine.abort_permits().acquire().await;
            if !self.flights.is_open(sent.number) {
                return Ok(());
            }
            let told = self.upstream.abort(&sent.engine, rid).await;
            drop(permit);
            told.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn by_engine(sent: Vec<Sent>) -> Vec<(Arc<Engine>, Vec<Target>)> {
    let mut groups: Vec<(Arc<Engine>, Vec<Target>)> = Vec::new();
    for sent in sent {
        let engine = Arc::clone(&sent.engine);
        let target = Target {
            sent,
            told: AtomicBool::new(false),
        };
        match groups
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &engine))
        {
            Some((_, targets)) => targets.push(target),
            None => groups.push((engine, vec![target])),
        }
    }
    groups
}
