//! `POST /pod-ended`: whoever started a pod says that it is gone, or asks whether it may go.

use std::sync::Arc;

use http::Response;
use serde::Deserialize;
use serde_json::json;

use super::fence::job_or_default;
use super::{json, read};
use crate::auth::Holder;
use crate::body::Body;
use crate::ending::{self, Report};
use crate::error::ApiError;
use crate::router::Inner;
use crate::session::{Outcome, Phase, Session};

#[derive(Deserialize)]
struct PodEndedBody {
    job: Option<Arc<str>>,
    slot: Slot,
    generation: u64,
    #[serde(default)]
    reason: Option<String>,
    /// The pod is there, and is to end if it has no session: there are more than are needed.
    #[serde(default)]
    only_idle: bool,
}

/// A slot is a number for whoever starts pods, and a text in a claim token.
#[derive(Deserialize)]
#[serde(untagged)]
enum Slot {
    Number(u64),
    Text(String),
}

impl Slot {
    fn into_text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

pub(crate) fn ended(inner: &Arc<Inner>, body: &[u8]) -> Result<Response<Body>, ApiError> {
    let PodEndedBody {
        job,
        slot,
        generation,
        reason,
        only_idle,
    } = read(body)?;
    let pod = Holder {
        job: job_or_default(inner, job)?.to_string(),
        slot: slot.into_text(),
        generation,
    };
    if only_idle {
        let is_busy = || {
            let mut sessions = inner.sessions.all().into_iter();
            sessions.any(|session| is_held_by(&session, &pod))
        };
        let ended = inner.jobs.of(&pod.job).end_idle_pod(&pod, is_busy);
        return json(&json!({"sessions": 0, "busy": !ended}));
    }
    // First nothing new for it, then what it has: a session that it claims in between is found.
    inner.jobs.of(&pod.job).end_pod(&pod);
    let reason = reason.unwrap_or_else(|| "the pod has ended".to_owned());
    let mut sessions = 0;
    for session in inner.sessions.all() {
        if !is_held_by(&session, &pod) {
            continue;
        }
        let report = Report::plain(Outcome::InfraFailed, Some(reason.clone()));
        if ending::end(inner, &session, report) {
            sessions += 1;
        }
    }
    json(&json!({"sessions": sessions}))
}

/// Whether a session is held by the pod, or by one that was in its slot before.
fn is_held_by(session: &Session, pod: &Holder) -> bool {
    let state = session.state.lock();
    let Phase::Assigned(assignment) = &state.phase else {
        return false;
    };
    let holder = &assignment.holder;
    holder.job == pod.job && holder.slot == pod.slot && holder.generation <= pod.generation
}
