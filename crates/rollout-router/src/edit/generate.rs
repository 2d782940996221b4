//! `/generate` requests: within a session, and pass-through with `n` > 1.

use rollout_session::json::{Cursor, JsonError};

use serde_json::Value;

use super::sampling::{Policy, Sampling};
use super::{Request, rid};
use crate::error::ApiError;
use crate::route::Forward;

/// Keys that the router sets itself in a session, or takes out.
const OWNED: [&str; 6] = [
    "stream",
    "return_logprob",
    "return_prompt_token_ids",
    "rid",
    "logprob_start_len",
    "background",
];

/// A `/generate` request that can be recorded.
#[derive(Debug)]
pub(crate) struct GenerateRequest<'a> {
    request: Request<'a>,
    /// Prompt ids, when the request names them.
    pub(crate) input_ids: Option<Vec<u32>>,
    pub(crate) has_logprob_start: bool,
}

impl<'a> GenerateRequest<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, ApiError> {
        let request = Request::read(body)?;
        let refused = |text: &str| Err(ApiError::BadRequest(text.to_owned()));
        if rid::batch_size(&request, Forward::Generate).is_some() {
            return refused("a session records one prompt at a time: send a request for each");
        }
        if choices(&request).is_some_and(|n| n != 1) {
            return refused("n must be 1 within a session");
        }
        if request.is_true("stream") {
            return refused("stream is not supported for /generate within a session");
        }
        if ["image_data", "audio_data", "video_data", "input_embeds"]
            .iter()
            .any(|key| request.get(key).is_some())
        {
            return refused(
                "sessions record text only: images, audio, video and embeddings are refused",
            );
        }
        let input_ids = request
            .get("input_ids")
            .map(|ids| Cursor::new(ids).ids())
            .transpose()
            .map_err(|_| {
                ApiError::BadRequest("input_ids must be a list of token ids".to_owned())
            })?;
        Ok(Self {
            input_ids,
            has_logprob_start: request.fields.get("logprob_start_len").is_some(),
            request,
        })
    }

    /// The body for the engine.
    pub(crate) fn rewrite(&self, rid: &str, sampling: &Sampling) -> Result<String, ApiError> {
        let mut added = format!(
            r#""return_logprob":true,"return_prompt_token_ids":true,"stream":false,"rid":"{rid}""#
        );
        let policy = !sampling.params.is_empty();
        if policy {
            added.push_str(r#","sampling_params":"#);
            added.push_str(&self.sampling_params(sampling)?);
        }
        let drop = |key: &str| OWNED.contains(&key) || (policy && key == "sampling_params");
        Ok(self.request.fields.rewrite(self.request.text, drop, &added))
    }

    /// The sampling parameters under the session's policy.
    fn sampling_params(&self, sampling: &Sampling) -> Result<String, ApiError> {
        let given = self.request.get("sampling_params").unwrap_or("{}");
        let given = Request::read(given.as_bytes())?;
        let mut added: Vec<String> = Vec::new();
        let mut replaced: Vec<&str> = Vec::new();
        for (key, value) in &sampling.params {
            let key = native_name(key);
            if sampling.policy == Policy::Pin || given.get(key).is_none() {
                added.push(format!("{}:{value}", Value::from(key)));
                replaced.push(key);
            }
        }
        let drop = |key: &str| replaced.contains(&key);
        Ok(given.fields.rewrite(given.text, drop, &added.join(",")))
    }
}

/// The name of a chat field among the sampling parameters of `/generate`.
fn native_name(key: &str) -> &str {
    match key {
        "max_tokens" | "max_completion_tokens" => "max_new_tokens",
        "min_tokens" => "min_new_tokens",
        "seed" => "sampling_seed",
        other => other,
    }
}

/// `n` of the sampling parameters, if it is set.
pub(crate) fn choices(request: &Request<'_>) -> Option<i64> {
    let sampling = Request::read(request.get("sampling_params")?.as_bytes()).ok()?;
    sampling.integer("n")
}

/// The request with `n` = 1.
pub(crate) fn single_choice(request: &Request<'_>) -> String {
    let sampling = request
        .get("sampling_params")
        .and_then(|params| Request::read(params.as_bytes()).ok())
        .map_or_else(
            || "{}".to_owned(),
            |params| params.fields.rewrite(params.text, |key| key == "n", ""),
        );
    let added = format!("\"sampling_params\":{sampling}");
    request
        .fields
        .rewrite(request.text, |key| key == "sampling_params", &added)
}

/// The elements of a JSON list, as text.
pub(crate) fn elements(list: &str) -> Result<Vec<&str>, JsonError> {
    let mut elements = Vec::new();
    let mut cursor = Cursor::new(list);
    cursor.array::<JsonError>(|_, element| {
        let span = element.span()?;
        elements.push(list.get(span).unwrap_or_default());
        Ok(())
    })?;
    cursor.finish()?;
    Ok(elements)
}
