//! `POST /sessions`.

use std::sync::Arc;

use http::Response;
use serde_json::json;
use tokio::time::Instant;

use super::json;
use crate::body::Body;
use crate::error::ApiError;
use crate::flights::Scope;
use crate::id::HexId;
use crate::session::{Session, SessionSpec};
use crate::state::Inner;

pub(crate) fn create(inner: &Arc<Inner>, body: &[u8]) -> Result<Response<Body>, ApiError> {
    let spec = SessionSpec::read(body, inner.config.job.as_deref())?;
    inner.flights.check(&Scope {
        job: spec.job.clone(),
        rollout_id: spec.rollout_id,
        session: None,
    })?;
    let id = HexId::owned_by(&inner.instance);
    let session = Session::new(id, spec, Instant::now());
    let (session, is_new) = inner.sessions.insert(session)?;
    if is_new
        && session.spec.assign
        && let Some(job) = &session.spec.job
    {
        inner.jobs.of(job).enqueue(session.id);
    }
    json(&json!({
        "session_id": session.id,
        "base_url": inner.base_url(&session.id),
        "session_server_instance_id": inner.instance,
    }))
}
