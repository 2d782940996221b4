//! Runs one claimed session: acts on what [`Life`] decides.

use std::{sync::Arc, time::Duration};

use rollout_session::short_id;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    hooks::Hooks,
    life::{Command, Event, Life},
    link::Link,
    outcome::{self, Cause, HookReport, SessionResult},
    router::{AbortEvent, Claim, Router, SessionState},
    stop::StopPlan,
    word::PodWord,
};
use crate::wire::{Abort, AbortDone, Ended, Start, seconds};

/// How long an events poll waits.
const EVENTS_WAIT: Duration = Duration::from_secs(20);

/// The first poll comes after the agent's first line: in a burst of sessions it would be in its way.
const EVENTS_DELAY: Duration = Duration::from_millis(100);

/// Pause after a failed call.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Missed heartbeats after which the router counts as lost; the router's own limit.
const HEARTBEATS_LOST: u32 = 3;

/// What all sessions of a launcher share.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) router: Router,
    pub(super) link: Link,
    pub(super) hooks: Hooks,
    pub(super) stop: CancellationToken,
    pub(super) stop_plan: StopPlan,
    /// Id of the abort that the launcher makes by itself: the hook runs once for it.
    pub(super) own_abort_id: String,
    pub(super) grace: Duration,
    pub(super) result_patience: Duration,
    pub(super) word: PodWord,
}

/// Runs a session to its end and posts its result. Answers whether every process of it is gone.
pub(super) async fn run(pod: &Arc<Pod>, claim: Claim) -> bool {
    let started = Instant::now();
    let deadline = claim.deadline_seconds.map(|limit| started + seconds(limit));
    let mut life = Life::new(deadline, pod.grace);
    let session_id = claim.session_id.clone();
    let heartbeat = seconds(claim.heartbeat_seconds).max(Duration::from_millis(50));
    tracing::info!(session = short_id(&session_id), "a session starts");
    let mut running = pod.link.start(start_of(claim));
    let (events, mut inbox) = mpsc::channel(8);
    let mut watchers = JoinSet::new();
    watchers.spawn(watch_heartbeat(
        Arc::clone(pod),
        session_id.clone(),
        heartbeat,
        events.clone(),
    ));
    watchers.spawn(watch_events(
        Arc::clone(pod),
        session_id.clone(),
        events.clone(),
    ));
    watchers.spawn(watch_stop(Arc::clone(pod), events.clone()));
    let mut ended: Option<Ended> = None;
    // Until the agent has ended and, when a hook was asked for, its report is there.
    while ended.is_none() || life.waits_for_hook() {
        let timer = life.timer().filter(|_| ended.is_none());
        let command = tokio::select! {
            end = &mut running, if ended.is_none() => {
                ended = Some(end.unwrap_or_else(|_| Ended::infra(&session_id, "the launcher lost the session")));
                None
            }
            Some(event) = inbox.recv() => life.on(event, Instant::now()),
            () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => Some(life.on_timer(Instant::now())),
        };
        match command {
            None => {}
            Some(Command::RunHook(abort)) => {
                tracing::info!(
                    session = short_id(&session_id),
                    abort_id = abort.abort_id,
                    "the session is aborted"
                );
                pod.link.terminate(&session_id);
                watchers.spawn(watch_hook(pod.hooks.run(abort), events.clone()));
            }
            Some(Command::Cancel) => pod.link.cancel(&session_id, pod.grace),
            Some(Command::GiveUp) => {
                pod.link.forget(&session_id);
                let mut lost = Ended::infra(&session_id, "the shim did not end the session");
                lost.clean = false;
                ended = Some(lost);
            }
        }
    }
    let ended = ended.unwrap_or_else(|| Ended::infra(&session_id, "the launcher lost the session"));
    if life.cause().is_none() && pod.word.on(&ended, &mut inbox).await {
        tracing::info!(
            session = short_id(&session_id),
            "somebody else has ended the session"
        );
        return ended.clean;
    }
    let clean = ended.clean;
    let mut result = outcome::result(
        life.cause(),
        ended,
        started.elapsed().as_secs_f64(),
        life.hook(),
    );
    tracing::info!(session = short_id(&session_id), outcome = ?result.outcome, seconds = result.agent_seconds, "the session ended");
    if life.cause() != Some(Cause::Gone)
        && let Some(abort) = post(pod, &session_id, &result).await
    {
        tracing::info!(
            session = short_id(&session_id),
            abort_id = abort.abort_id,
            "the session ended while it was being aborted"
        );
        result.hook = run_hook(pod, abort).await;
        result.runs_hooks = false;
        post(pod, &session_id, &result).await;
    }
    clean
}

fn start_of(claim: Claim) -> Start {
    Start {
        session_id: claim.session_id,
        base_url: claim.base_url,
        token: claim.token,
        prompt: claim.prompt,
        request_kwargs: claim.request_kwargs,
        metadata: claim.metadata,
        deadline_seconds: claim.deadline_seconds,
        resume: claim.resume,
        alone: claim.alone,
    }
}

/// Runs the hook of an abort, or waits for it where another session of this process had it run.
async fn run_hook(pod: &Pod, abort: AbortEvent) -> Option<HookReport> {
    let abort = Abort {
        abort_id: abort.abort_id,
        timeout_seconds: abort.timeout_seconds,
        args: abort.args,
    };
    let mut report = pod.hooks.run(abort);
    let done = report.wait_for(Option::is_some).await.ok()?.clone()?;
    Some(HookReport {
        abort_id: done.abort_id,
        result: done.result,
        error: done.error,
    })
}

/// Posts a result until the router has it, the session is gone, or the time for it is over. An abort that the router answers with has to
/// be carried out first.
pub(super) async fn post(
    pod: &Pod,
    session_id: &str,
    result: &SessionResult,
) -> Option<AbortEvent> {
    let session = short_id(session_id);
    let mut until = Instant::now() + pod.result_patience;
    let mut stopping = false;
    loop {
        if !stopping && pod.stop.is_cancelled() {
            stopping = true;
            until = until.min(Instant::now() + pod.stop_plan.post);
        }
        let last = match timeout_at(until, pod.router.result(session_id, result)).await {
            Ok(Ok(abort)) => return abort,
            Ok(Err(error)) if error.is_gone() => {
                tracing::info!(session, "nobody waits for the result");
                return None;
            }
            Ok(Err(error)) if !error.is_transient() => {
                tracing::error!(session, %error, "the result was refused");
                return None;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the time for it is over".to_owned(),
        };
        if Instant::now() + RETRY_PAUSE >= until {
            tracing::error!(session, error = last, "the result could not be posted");
            return None;
        }
        tracing::debug!(session, error = last, "the result is posted again");
        tokio::select! {
            () = sleep(RETRY_PAUSE) => {}
            () = pod.stop.cancelled(), if !stopping => {}
        }
    }
}

async fn watch_heartbeat(
    pod: Arc<Pod>,
    session_id: String,
    interval: Duration,
    events: mpsc::Sender<Event>,
) {
    let mut heard = Instant::now();
    loop {
        sleep(interval).await;
        match pod.router.heartbeat(&session_id, interval).await {
            Ok(SessionState::Ended) => break drop(events.send(Event::Gone).await),
            Ok(_) => heard = Instant::now(),
            Err(error) if error.is_gone() => break drop(events.send(Event::Gone).await),
            Err(error) => {
                tracing::warn!(session = short_id(&session_id), %error, "a heartbeat failed");
            }
        }
        if heard.elapsed() > interval * HEARTBEATS_LOST {
            let abort = pod.own_abort("the router is lost");
            break drop(events.send(Event::RouterLost(abort)).await);
        }
    }
}

async fn watch_events(pod: Arc<Pod>, session_id: String, events: mpsc::Sender<Event>) {
    sleep(EVENTS_DELAY).await;
    loop {
        let asked = Instant::now();
        match pod.router.event(&session_id, EVENTS_WAIT).await {
            Ok(Some(abort)) => {
                tracing::debug!(
                    session = short_id(&session_id),
                    reason = abort.reason,
                    "the router aborts the session"
                );
                break drop(events.send(Event::Abort(abort)).await);
            }
            // An early answer may say that the session ended at the router.
            Ok(None) if asked.elapsed() < EVENTS_WAIT / 2 => {
                if let Ok(SessionState::Ended) =
                    pod.router.heartbeat(&session_id, RETRY_PAUSE).await
                {
                    break drop(events.send(Event::Gone).await);
                }
                sleep(RETRY_PAUSE).await;
            }
            Ok(None) => {}
            Err(error) if error.is_gone() => break drop(events.send(Event::Gone).await),
            Err(error) => {
                tracing::debug!(session = short_id(&session_id), %error, "an events poll failed");
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

async fn watch_stop(pod: Arc<Pod>, events: mpsc::Sender<Event>) {
    pod.stop.cancelled().await;
    let abort = pod.own_abort("the agent pod ends");
    let shim = pod.stop_plan.shim;
    drop(events.send(Event::Stop { abort, shim }).await);
}

async fn watch_hook(mut report: watch::Receiver<Option<AbortDone>>, events: mpsc::Sender<Event>) {
    let done = report
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|done| done.clone());
    if let Some(done) = done {
        drop(events.send(Event::HookDone(done)).await);
    }
}

impl Pod {
    fn own_abort(&self, reason: &str) -> Abort {
        let args = [("reason".to_owned(), reason.into())].into_iter().collect();
        Abort {
            abort_id: self.own_abort_id.clone(),
            timeout_seconds: self.stop_plan.hook.as_secs_f64(),
            args,
        }
    }
}
