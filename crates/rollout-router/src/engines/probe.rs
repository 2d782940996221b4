//! Asks every engine from time to time whether it is there. `/ping` is cheap and passes on a paused engine; `/health` is never
//! called, because on a paused engine it fails and marks it as broken.
//!
//! An engine may be too busy to answer at once, so a probe stays open while the next ones are sent: an answer to any of them counts.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use tokio::time::Instant;

use super::silence::{Silence, Unanswered};
use super::{Engine, Engines, SendError, Upstream};
use crate::config::Times;

/// Probes until it is dropped.
pub(crate) async fn run(engines: Arc<Engines>, upstream: Upstream) {
    let mut known: Vec<Arc<Engine>> = Vec::new();
    let mut watches = FuturesUnordered::new();
    loop {
        let grown = engines.grown().notified();
        tokio::pin!(grown);
        grown.as_mut().enable();
        for engine in engines.all().iter() {
            if !known.iter().any(|other| Arc::ptr_eq(other, engine)) {
                known.push(Arc::clone(engine));
                watches.push(watch(&engines, Arc::clone(engine), &upstream));
            }
        }
        tokio::select! {
            Some(forgotten) = watches.next() => {
                known.retain(|engine| !Arc::ptr_eq(engine, &forgotten));
            }
            () = grown => {}
        }
    }
}

/// Watches an engine until it is forgotten. Engines are known apart: one that is slow to answer holds up no other one's probes.
async fn watch(engines: &Engines, engine: Arc<Engine>, upstream: &Upstream) -> Arc<Engine> {
    let times = upstream.times();
    let mut ticks = tokio::time::interval(times.probe);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut silence = Silence::default();
    let mut probes = FuturesUnordered::new();
    loop {
        ticks.tick().await;
        if engines.forget(&engine) {
            return Arc::clone(&engine);
        }
        let sent = Instant::now();
        probes.push(ping(&engine, upstream, times));
        let answer = tokio::time::timeout(times.control_call, probes.next()).await;
        let answer = answer
            .ok()
            .flatten()
            .unwrap_or(Err(SendError::Timeout(times.control_call)));
        let busy = engine.in_flight() > 0;
        engine.note_problem(answer.as_ref().err().map(ToString::to_string));
        judge(&engine, verdict(&answer, busy));
        if answer.is_ok() {
            probes.clear();
        }
        let heard = engine.heard();
        if silence.lasts(
            Unanswered { sent, heard, busy },
            Instant::now(),
            times.engine_silence,
        ) {
            tracing::warn!(
                engine = engine.url(),
                "engine has work and answers nothing: its requests are ended"
            );
            engine.give_up();
            probes.clear();
        }
    }
}

async fn ping(
    engine: &Engine,
    upstream: &Upstream,
    times: &Times,
) -> Result<(StatusCode, Bytes), SendError> {
    let path = PathAndQuery::from_static("/ping");
    let limit = times.engine_silence.max(times.control_call);
    upstream
        .control_within(engine, Method::GET, path, Bytes::new(), limit)
        .await
}

fn judge(engine: &Engine, verdict: Option<bool>) {
    let changed = match verdict {
        Some(true) => engine.note_success(),
        Some(false) => engine.note_failure(),
        None => false,
    };
    if changed {
        let healthy = engine.is_healthy();
        tracing::warn!(
            engine = engine.url(),
            healthy,
            "engine changed its standing"
        );
    }
}

/// Whether an engine serves; `None` when the probe does not tell. 503 says that it starts, drains or is broken; any other answer comes
/// from a process that serves. An engine with work that answers nothing may just be busy with it, for a while.
fn verdict(answer: &Result<(StatusCode, Bytes), SendError>, busy: bool) -> Option<bool> {
    match answer {
        Ok((status, _)) => Some(*status != StatusCode::SERVICE_UNAVAILABLE),
        Err(SendError::Timeout(_)) if busy => None,
        Err(_) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::StatusCode;

    use super::{SendError, verdict};

    #[test]
    fn a_busy_engine_is_not_taken_for_a_dead_one() {
        let silent = || Err(SendError::Timeout(Duration::from_secs(5)));
        assert_eq!(verdict(&silent(), true), None);
        assert_eq!(verdict(&silent(), false), Some(false));
        let refused = Err(SendError::NotSent("connection refused".to_owned()));
        assert_eq!(verdict(&refused, true), Some(false));
        let answer = |status| Ok((status, Bytes::new()));
        assert_eq!(verdict(&answer(StatusCode::OK), false), Some(true));
        assert_eq!(verdict(&answer(StatusCode::NOT_FOUND), false), Some(true));
        assert_eq!(
            verdict(&answer(StatusCode::SERVICE_UNAVAILABLE), true),
            Some(false)
        );
    }
}
