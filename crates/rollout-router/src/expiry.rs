//! Looks at the clocks of all sessions from time to time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::ending::{self, Report};
use crate::session::{Clocks, Expiry, Outcome, Session, due};
use crate::state::Inner;

const PERIOD: Duration = Duration::from_millis(500);

/// Sweeps until the router is gone.
pub(crate) async fn run(inner: Weak<Inner>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        sweep(&inner, Instant::now());
    }
}

fn sweep(inner: &Arc<Inner>, now: Instant) {
    for session in inner.sessions.all() {
        if let Some(expiry) = expiry(inner, &session, now) {
            expire(inner, &session, expiry, now);
        }
    }
    inner
        .sessions
        .forget_deleted(now, inner.config.times.tombstone);
}

fn expiry(inner: &Inner, session: &Session, now: Instant) -> Option<Expiry> {
    let state = session.state.lock();
    let clocks = Clocks {
        phase: &state.phase,
        created_at: session.created_at,
        last_activity: state.last_activity,
        busy: !state.calls.is_empty(),
        deadline: session.spec.deadline_seconds.map(Duration::from_secs_f64),
    };
    due(&clocks, &inner.config.times, now)
}

fn expire(inner: &Arc<Inner>, session: &Session, expiry: Expiry, now: Instant) {
    let times = &inner.config.times;
    match expiry {
        Expiry::Idle => {
            tracing::info!(
                session = session.id.short(),
                "session expired: idle for {:?}",
                times.session_idle
            );
            if let Ok(Some(session)) = inner.sessions.remove(session.id, now) {
                ending::delete(inner, &session);
            }
        }
        Expiry::NoHeartbeat => {
            let error = format!("no heartbeat of the launcher for {:?}", times.heartbeat * 3);
            tracing::warn!(session = session.id.short(), "{error}");
            let report = Report::plain(Outcome::InfraFailed, Some(error));
            ending::end(inner, session, report);
        }
        Expiry::Deadline => {
            let error = "the session outlived its deadline".to_owned();
            tracing::warn!(session = session.id.short(), "{error}");
            ending::end(
                inner,
                session,
                Report::plain(Outcome::Deadline, Some(error)),
            );
        }
    }
}
