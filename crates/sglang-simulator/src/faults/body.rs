//! Bodies that break off, or say something wrong.

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::Value;

use super::FaultKind;

/// A body that ends in an error after half of its first frame (a whole body, or the first event of a stream).
pub(crate) fn cut(body: Body) -> Body {
    let frames = body.into_data_stream().take(1).map(|frame| {
        frame
            .map(|bytes| bytes.slice(..bytes.len() / 2))
            .map_err(std::io::Error::other)
    });
    let end = futures_util::stream::once(async {
        // what is written already leaves first
        tokio::task::yield_now().await;
        Err(std::io::ErrorKind::ConnectionReset.into())
    });
    Body::from_stream(frames.chain(end))
}

/// The same body with wrong counts or without ids, event by event when it is a stream.
pub(crate) fn rewrite(body: Body, kind: FaultKind, is_stream: bool) -> Body {
    if is_stream {
        let events = body
            .into_data_stream()
            .map(move |frame| frame.map(|bytes| rewrite_event(&bytes, kind)));
        return Body::from_stream(events);
    }
    let whole = async move {
        let bytes = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)?;
        Ok::<_, axum::Error>(rewrite_json(&bytes, kind).unwrap_or(bytes))
    };
    Body::from_stream(futures_util::stream::once(whole))
}

fn rewrite_event(event: &Bytes, kind: FaultKind) -> Bytes {
    let text = String::from_utf8_lossy(event);
    let changed = text
        .strip_prefix("data: ")
        .and_then(|rest| rewrite_json(rest.trim_end().as_bytes(), kind))
        .map(|json| format!("data: {}\n\n", String::from_utf8_lossy(&json)));
    changed.map_or_else(|| event.clone(), Bytes::from)
}

fn rewrite_json(bytes: &[u8], kind: FaultKind) -> Option<Bytes> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    spoil(&mut value, kind);
    serde_json::to_vec(&value).ok().map(Bytes::from)
}

const IDS: [&str; 7] = [
    "output_ids",
    "output_token_logprobs",
    "output_token_logprobs_length",
    "response_token_ids",
    "prompt_token_ids",
    "token_ids",
    "token_id",
];

fn spoil(value: &mut Value, kind: FaultKind) {
    match value {
        Value::Object(fields) => {
            if kind == FaultKind::MissingIds {
                for key in IDS {
                    fields.shift_remove(key);
                }
            } else if let Some(count) = fields.get("completion_tokens").and_then(Value::as_u64) {
                fields["completion_tokens"] = Value::from(count + 1);
            }
            for field in fields.values_mut() {
                spoil(field, kind);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| spoil(item, kind)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_are_one_too_high_and_ids_are_gone() {
        let answer = json!({"output_ids": [1], "meta_info": {"completion_tokens": 1, "output_token_logprobs": []}});
        let mut counts = answer.clone();
        spoil(&mut counts, FaultKind::WrongCounts);
        assert_eq!(counts["meta_info"]["completion_tokens"], 2);
        let mut ids = answer;
        spoil(&mut ids, FaultKind::MissingIds);
        assert_eq!(ids, json!({"meta_info": {"completion_tokens": 1}}));
    }
}
