//! Asks every engine from time to time whether it is there. `/ping` is cheap and passes on a paused engine; `/health` is never
//! called, because on a paused engine it fails and marks it as broken.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};

use super::{Engine, Engines, SendError, Upstream};

/// Probes until it is dropped.
pub(crate) async fn run(engines: Arc<Engines>, upstream: Upstream, period: Duration) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut probes = Vec::new();
        for engine in engines.iter() {
            probes.push(probe(engine, &upstream));
        }
        join_all(probes).await;
    }
}

async fn probe(engine: &Engine, upstream: &Upstream) {
    let path = PathAndQuery::from_static("/ping");
    let answer = upstream
        .control(engine, Method::GET, path, Bytes::new())
        .await;
    let changed = match verdict(&answer, engine.in_flight()) {
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
/// from a process that serves. An engine with work that answers nothing may just be busy with it.
fn verdict(answer: &Result<(StatusCode, Bytes), SendError>, in_flight: usize) -> Option<bool> {
    match answer {
        Ok((status, _)) => Some(*status != StatusCode::SERVICE_UNAVAILABLE),
        Err(SendError::Timeout(_)) if in_flight > 0 => None,
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
        assert_eq!(verdict(&silent(), 3), None);
        assert_eq!(verdict(&silent(), 0), Some(false));
        let refused = Err(SendError::NotSent("connection refused".to_owned()));
        assert_eq!(verdict(&refused, 3), Some(false));
        let answer = |status| Ok((status, Bytes::new()));
        assert_eq!(verdict(&answer(StatusCode::OK), 0), Some(true));
        assert_eq!(verdict(&answer(StatusCode::NOT_FOUND), 0), Some(true));
        assert_eq!(
            verdict(&answer(StatusCode::SERVICE_UNAVAILABLE), 9),
            Some(false)
        );
    }
}
