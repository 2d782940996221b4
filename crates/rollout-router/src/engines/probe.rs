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
    let changed = if is_alive(&answer) {
        engine.note_success()
    } else {
        engine.note_failure()
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

/// 503 says that it starts, drains or is broken; any other answer comes from a process that serves.
fn is_alive(answer: &Result<(StatusCode, Bytes), SendError>) -> bool {
    answer
        .as_ref()
        .is_ok_and(|(status, _)| *status != StatusCode::SERVICE_UNAVAILABLE)
}
