//! `POST /sessions/{id}/samples`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Response};
use rollout_session::{CollectOptions, codec, plan};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::read;
use crate::body::Body;
use crate::chat::Reply;
use crate::engines::Engine;
use crate::error::ApiError;
use crate::id::HexId;
use crate::state::Inner;

#[derive(Deserialize)]
struct SamplesBody {
    #[serde(default)]
    max_seq_len: Option<usize>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    split: bool,
}

pub(crate) async fn samples(
    inner: &Arc<Inner>,
    id: HexId,
    parts: &Parts,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let session = inner.sessions.get(id)?;
    let SamplesBody {
        max_seq_len,
        metadata,
        split,
    } = read(body)?;
    let options = CollectOptions {
        max_seq_len,
        metadata: metadata.unwrap_or_default(),
        split,
        ..CollectOptions::default()
    };
    let (plan, seat) = {
        let mut state = session.state.lock();
        state.last_activity = Instant::now();
        let seat = state.seat.as_ref().map(|seat| Arc::clone(seat.engine()));
        (plan(&state.forest, options), seat)
    };
    let texts = decode(inner, seat, &plan.decode).await;
    // Turns are only ever added, so the plan still holds.
    let collected = plan.assemble(&session.state.lock().forest, &texts);
    let wants_json = parts
        .headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("application/json"));
    let internal = |error: &dyn std::error::Error| ApiError::Internal(error.to_string());
    let mut reply = if wants_json {
        Reply::json(codec::to_json(collected).map_err(|error| internal(&error))?)
    } else {
        let mut reply = Reply::json(codec::encode(&collected).map_err(|error| internal(&error))?);
        let binary = HeaderValue::from_static(codec::CONTENT_TYPE);
        reply.headers.insert(CONTENT_TYPE, binary);
        reply
    };
    reply.headers.remove("transfer-encoding");
    Ok(reply.into_response())
}

/// Token lists of one decode call.
const LISTS: usize = 64;
/// Decode calls at the same time.
const CALLS: usize = 4;

/// Texts of token ids, from an engine: in Recorded mode the router has no tokenizer. What cannot be had in time is `None`.
async fn decode(
    inner: &Inner,
    seat: Option<Arc<Engine>>,
    lists: &[Vec<u32>],
) -> Vec<Option<String>> {
    let deadline = Instant::now() + inner.config.times.decode;
    let mut texts: Vec<Option<String>> = Vec::with_capacity(lists.len());
    let engine = seat
        .filter(|engine| engine.serves())
        .or_else(|| inner.engines.pick(&[]));
    if let Some(engine) = engine.filter(|_| !lists.is_empty()) {
        let calls: Vec<_> = lists
            .chunks(LISTS)
            .map(|chunk| decode_chunk(inner, &engine, chunk, deadline))
            .collect();
        let calls = stream::iter(calls).buffered(CALLS);
        tokio::pin!(calls);
        while let Some(chunk) = calls.next().await {
            texts.extend(chunk);
        }
    }
    texts.resize(lists.len(), None);
    texts
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Decoded {
    text: Text,
}

async fn decode_chunk(
    inner: &Inner,
    engine: &Engine,
    lists: &[Vec<u32>],
    deadline: Instant,
) -> Vec<Option<String>> {
    let nothing = || vec![None; lists.len()];
    let within = deadline.saturating_duration_since(Instant::now());
    let body = json!({"tokens": lists, "skip_special_tokens": false}).to_string();
    let path = PathAndQuery::from_static("/v1/detokenize");
    let answer = inner
        .upstream
        .control_within(engine, Method::POST, path, Bytes::from(body), within)
        .await;
    let (status, body) = match answer {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(engine = engine.url(), %error, "texts between turns could not be decoded");
            return nothing();
        }
    };
    let decoded = serde_json::from_slice::<Decoded>(&body);
    match decoded {
        Ok(Decoded {
            text: Text::Many(texts),
        }) if texts.len() == lists.len() => texts.into_iter().map(Some).collect(),
        Ok(Decoded {
            text: Text::One(text),
        }) if lists.len() == 1 => vec![Some(text)],
        _ => {
            tracing::warn!(engine = engine.url(), %status, "texts between turns could not be decoded");
            nothing()
        }
    }
}
