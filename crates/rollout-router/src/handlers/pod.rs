//! `POST /pod-ended`: whoever started a pod says that it is gone, or asks whether it may go.

use std::sync::Arc;

use http::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{job_or_default, json, read};
use crate::auth::Holder;
use crate::body::Body;
use crate::ending::{self, Report};
use crate::error::ApiError;
use crate::session::{Outcome, Phase, Session};
use crate::state::Inner;

#[derive(Deserialize)]
struct PodEndedBody {
    job: Option<Arc<str>>,
    slot: Slot,
    generation: u64,
    #[serde(default)]
    reason: Option<String>,
    /// Why, as a word for the driver.
    #[serde(default)]
    cause: Option<Cause>,
    /// The pod is there, and is to end if it has no session: there are more than are needed.
    #[serde(default)]
    only_idle: bool,
}

/// What only whoever watches the pod knows; a mark in the metadata of its sessions.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Cause {
    /// The agent's container used up its memory limit.
    OutOfMemory,
    /// A container that the agent works in was started again.
    SandboxFailed,
    /// A word of a later version.
    #[serde(other)]
    Other,
}

impl Cause {
    fn marks(self) -> Map<String, Value> {
        let mark = match self {
            Self::OutOfMemory => "out_of_memory",
            Self::SandboxFailed => "sandbox_failed",
            Self::Other => return Map::new(),
        };
        Map::from_iter([(mark.to_owned(), Value::Bool(true))])
    }
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
        cause,
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
        let report = Report {
            metadata: cause.map(Cause::marks).unwrap_or_default(),
            ..Report::plain(Outcome::InfraFailed, Some(reason.clone()))
        };
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
