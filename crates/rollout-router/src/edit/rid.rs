//! Request ids of pass-through requests: what the client gave, or ours, so that every request can be aborted.

use rollout_session::json::{Cursor, JsonError, Kind};

use super::Request;
use crate::error::ApiError;
use crate::id::HexId;
use crate::route::Forward;

/// A pass-through request with its ids.
#[derive(Debug)]
pub(crate) struct Identified {
    pub(crate) rids: Vec<String>,
    /// The body, when an id had to be added.
    pub(crate) body: Option<String>,
}

/// Finds the ids of a request, or adds them.
pub(crate) fn identify(
    request: &Request<'_>,
    forward: Forward,
    make: impl Fn() -> HexId,
) -> Result<Identified, ApiError> {
    if let Some(given) = request.get("rid") {
        return Ok(Identified {
            rids: given_ids(given)?,
            body: None,
        });
    }
    let batch = batch_size(request, forward);
    let rids: Vec<String> = (0..batch.unwrap_or(1))
        .map(|_| make().as_str().to_owned())
        .collect();
    let list = rids
        .iter()
        .map(|rid| format!("\"{rid}\""))
        .collect::<Vec<_>>()
        .join(",");
    let added = if batch.is_some() {
        format!("\"rid\":[{list}]")
    } else {
        format!("\"rid\":{list}")
    };
    Ok(Identified {
        rids,
        body: Some(splice(request, &added)),
    })
}

/// Adds a field at the end, all other bytes as they are. A `rid` of null goes.
fn splice(request: &Request<'_>, added: &str) -> String {
    if request.fields.get("rid").is_some() {
        return request
            .fields
            .rewrite(request.text, |key| key == "rid", added);
    }
    let (before, after) = request.text.split_at(request.fields.end());
    let comma = if request.fields.iter().next().is_some() {
        ","
    } else {
        ""
    };
    format!("{before}{comma}{added}{after}")
}

fn given_ids(value: &str) -> Result<Vec<String>, ApiError> {
    let wrong = || ApiError::BadRequest("rid must be a string or a list of strings".to_owned());
    let mut cursor = Cursor::new(value);
    let mut ids = Vec::new();
    match cursor.kind().map_err(|_| wrong())? {
        Kind::String => ids.push(cursor.string().map_err(|_| wrong())?.into_owned()),
        Kind::Array => cursor
            .array::<JsonError>(|_, id| {
                ids.push(id.string()?.into_owned());
                Ok(())
            })
            .map_err(|_| wrong())?,
        _ => return Err(wrong()),
    }
    Ok(ids)
}

/// Number of prompts of a batch; `None` for a single prompt.
pub(crate) fn batch_size(request: &Request<'_>, forward: Forward) -> Option<usize> {
    match forward {
        Forward::Generate => {
            if let Some(text) = request.get("text") {
                return elements(text, |kind| kind == Kind::String);
            }
            if let Some(ids) = request.get("input_ids") {
                return elements(ids, |kind| kind == Kind::Array);
            }
            embeddings(request.get("input_embeds")?)
        }
        Forward::Completions => {
            let prompt = request.get("prompt")?;
            elements(prompt, |kind| matches!(kind, Kind::String | Kind::Array))
        }
        Forward::Chat | Forward::Models => None,
    }
}

/// Length of a list whose first element is of such a kind.
fn elements(value: &str, wanted: impl Fn(Kind) -> bool) -> Option<usize> {
    if !wanted(first_kind(value)?) {
        return None;
    }
    count(value)
}

/// Kind of the first element of a list.
fn first_kind(value: &str) -> Option<Kind> {
    let inner = value.trim_start().strip_prefix('[')?;
    Cursor::new(inner).kind().ok()
}

fn count(value: &str) -> Option<usize> {
    let mut count = 0;
    let walked = Cursor::new(value).array::<JsonError>(|_, element| {
        count += 1;
        element.skip()
    });
    walked.ok().map(|()| count)
}

/// One prompt is a list of vectors, a batch a list of such lists.
fn embeddings(value: &str) -> Option<usize> {
    let inner = value.trim_start().strip_prefix('[')?;
    if first_kind(inner)? != Kind::Array {
        return None;
    }
    count(value)
}
