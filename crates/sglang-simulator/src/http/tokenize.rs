//! `/tokenize` and `/detokenize`.

use std::fmt::Display;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::App;
use super::body::Place;
use super::chat::render;
use super::reply::{self, ApiError};

const TOKENIZE: Place = Place {
    path: "/v1/tokenize",
    function: "openai_v1_tokenize",
    line: 0,
};
const DETOKENIZE: Place = Place {
    path: "/v1/detokenize",
    function: "openai_v1_detokenize",
    line: 0,
};

fn refuse(message: impl Display) -> ApiError {
    ApiError::OpenAi(format!("{message}"), "BadRequestError")
}

/// Text, texts, or messages to ids.
pub(super) async fn tokenize(app: Arc<App>, request: Request) -> Response {
    let answer = async {
        let fields = TOKENIZE.json_object(request).await?;
        let encode = |text: &str| app.tokenizer.encode(text).map_err(refuse);
        let (tokens, count) = match (fields.get("prompt"), fields.get("messages")) {
            (Some(Value::String(text)), _) => one(encode(text)?),
            (Some(Value::Array(texts)), _) => {
                let texts = texts.iter().map(|text| {
                    text.as_str()
                        .ok_or_else(|| refuse("prompt must hold texts"))
                });
                let lists = texts
                    .map(|text| encode(text?))
                    .collect::<Result<Vec<_>, _>>()?;
                let counts: Vec<_> = lists.iter().map(Vec::len).collect();
                (json!(lists), json!(counts))
            }
            (None, Some(messages)) => {
                let kwargs = fields
                    .get("chat_template_kwargs")
                    .and_then(Value::as_object);
                one(encode(
                    &render(
                        &app,
                        messages,
                        fields.get("tools"),
                        kwargs.unwrap_or(&Map::new()),
                    )
                    .map_err(refuse)?,
                )?)
            }
            _ => return Err(refuse("Either prompt or messages must be provided.")),
        };
        Ok(reply::ok(
            &json!({"tokens": tokens, "count": count, "max_model_len": app.context_length()}),
        ))
    };
    answer.await.unwrap_or_else(ApiError::into_response)
}

fn one(ids: Vec<u32>) -> (Value, Value) {
    let count = ids.len();
    (ids.into(), count.into())
}

/// Ids, or lists of them, to text.
pub(super) async fn detokenize(app: Arc<App>, request: Request) -> Response {
    let answer = async {
        let fields = DETOKENIZE.json_object(request).await?;
        let skip = fields
            .get("skip_special_tokens")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        let decode = |ids: &Value| {
            let ids: Vec<u32> = serde_json::from_value(ids.clone()).map_err(refuse)?;
            app.tokenizer.decode(&ids, skip).map_err(refuse)
        };
        let text = match fields.get("tokens") {
            Some(Value::Array(lists)) if lists.first().is_some_and(Value::is_array) => lists
                .iter()
                .map(decode)
                .collect::<Result<Vec<_>, _>>()?
                .into(),
            Some(ids) => Value::from(decode(ids)?),
            None => return Err(DETOKENIZE.missing_field("tokens", &fields)),
        };
        Ok(reply::ok(&json!({"text": text})))
    };
    answer.await.unwrap_or_else(ApiError::into_response)
}
