//! What a session is created with.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::edit::sampling::Sampling;
use crate::error::ApiError;

/// The body of `POST /sessions`. Everything is optional.
#[derive(Debug, Deserialize, Default)]
pub(crate) struct SessionSpec {
    pub(crate) job: Option<Arc<str>>,
    pub(crate) rollout_id: Option<i64>,
    pub(crate) prompt: Option<Box<RawValue>>,
    pub(crate) request_kwargs: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) sampling: Option<Sampling>,
    pub(crate) max_seq_len: Option<usize>,
    pub(crate) deadline_seconds: Option<f64>,
    pub(crate) metadata: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) assign: bool,
    #[serde(default)]
    pub(crate) resume: bool,
    #[serde(default)]
    pub(crate) alone: bool,
    pub(crate) idempotency_key: Option<String>,
}

impl SessionSpec {
    /// Reads and checks the body; an empty one makes a bare session.
    pub(crate) fn read(body: &[u8], default_job: Option<&str>) -> Result<Self, ApiError> {
        let mut spec = if body.iter().all(u8::is_ascii_whitespace) {
            Self::default()
        } else {
            serde_json::from_slice(body)
                .map_err(|error| ApiError::BadRequest(format!("invalid session: {error}")))?
        };
        if spec.job.is_none() {
            spec.job = default_job.map(Arc::from);
        }
        spec.check()?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), ApiError> {
        let refuse = |text: &str| Err(ApiError::BadRequest(text.to_owned()));
        if self.assign && self.job.is_none() {
            return refuse("assign needs a job: launchers claim the sessions of their job");
        }
        if self.max_seq_len == Some(0) {
            return refuse("max_seq_len must be at least 1");
        }
        if self
            .deadline_seconds
            .is_some_and(|seconds| !seconds.is_finite() || seconds <= 0.0 || seconds > 1e9)
        {
            return refuse("deadline_seconds must be a positive number");
        }
        for (name, value) in [
            ("request_kwargs", &self.request_kwargs),
            ("metadata", &self.metadata),
        ] {
            if let Some(value) = value
                && !is_object_or_null(value)
            {
                return refuse(&format!("{name} must be an object"));
            }
        }
        if let Some(sampling) = &self.sampling {
            sampling.check()?;
        }
        Ok(())
    }
}

fn is_object_or_null(value: &RawValue) -> bool {
    value.get().starts_with('{') || value.get() == "null"
}
