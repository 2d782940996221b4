//! Reading request bodies, with the texts of FastAPI's validation.

use axum::extract::Request;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};

use super::problem::{Location, Problem};
use super::pydantic::{self, Field};
use super::reply::ApiError;

/// Longest body that is read.
const MAX_BODY: usize = 256 << 20;

/// A route as its validation errors name it: SGLang prints where the handler is defined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) path: &'static str,
    pub(super) function: &'static str,
    /// Line of the handler in SGLang 0.5.23; 0 where it has not been seen.
    pub(super) line: u32,
}

/// File that validation errors name.
const FILE: &str = "/sgl-workspace/sglang/python/sglang/srt/entrypoints/http_server.py";

impl Place {
    /// The error of a body with these problems.
    pub(super) fn invalid(&self, problems: &[Problem]) -> ApiError {
        let count = problems.len();
        let noun = if count == 1 { "error" } else { "errors" };
        let lines: String = problems
            .iter()
            .flat_map(|problem| ["  ", problem.as_str(), "\n"])
            .collect();
        let list: Vec<_> = problems.iter().map(Problem::as_str).collect();
        ApiError::Validation(format!(
            "{count} validation {noun}:\n{lines}\n  File \"{FILE}\", line {}, in {}\n    POST {} [{}]",
            self.line,
            self.function,
            self.path,
            list.join(", ")
        ))
    }

    /// Checks the types of a body's fields.
    pub(super) fn check(
        &self,
        known: &[Field],
        fields: &Map<String, Value>,
    ) -> Result<(), ApiError> {
        let mut problems = Vec::new();
        pydantic::check(known, &Location::Body, fields, &mut problems);
        if problems.is_empty() {
            Ok(())
        } else {
            Err(self.invalid(&problems))
        }
    }

    /// The error of a body that is absent.
    pub(super) fn missing(&self) -> ApiError {
        self.invalid(&[Location::Body.missing(&Value::Null)])
    }

    /// The error of a body without a field.
    pub(super) fn missing_field(&self, name: &str, fields: &Map<String, Value>) -> ApiError {
        let whole = Value::Object(fields.clone());
        self.invalid(&[Location::Body.key(name).missing(&whole)])
    }

    /// The error of a body that is no JSON.
    pub(super) fn no_json(&self, body: &[u8], error: &serde_json::Error) -> ApiError {
        let (at, what) = if error.is_eof() {
            (body.len(), "unexpected end of data")
        } else {
            (
                offset(body, error.line(), error.column()),
                "unexpected character",
            )
        };
        let nothing = Value::Object(Map::new());
        let problem = Location::Body
            .index(at)
            .problem("json_invalid", "JSON decode error", &nothing)
            .with_context(&format!("'error': '{what}'"));
        self.invalid(&[problem])
    }

    /// The error of a body that is JSON, but no object.
    pub(super) fn no_object(&self, body: &Value) -> ApiError {
        self.invalid(&[Location::Body.no_object(body)])
    }

    /// The object that a request of an OpenAI route brings.
    pub(super) async fn json_object(
        &self,
        request: Request,
    ) -> Result<Map<String, Value>, ApiError> {
        require_json(&request)?;
        self.object(&read(request).await?)
    }

    /// A body that must be a JSON object.
    pub(super) fn object(&self, body: &[u8]) -> Result<Map<String, Value>, ApiError> {
        if body.is_empty() {
            return Err(self.missing());
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(other) => Err(self.no_object(&other)),
            Err(error) => Err(self.no_json(body, &error)),
        }
    }
}

fn offset(body: &[u8], line: usize, column: usize) -> usize {
    let before: usize = body
        .split(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum();
    before + column.saturating_sub(1)
}

/// Reads the whole body.
pub(super) async fn read(request: Request) -> Result<Bytes, ApiError> {
    match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::Engine(
            413,
            format!("the body is longer than {MAX_BODY} bytes"),
        )),
        Err(error) => Err(ApiError::Native(format!(
            "the body cannot be read: {error}"
        ))),
    }
}

/// The OpenAI routes take nothing but JSON.
fn require_json(request: &Request) -> Result<(), ApiError> {
    let content_type = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = content_type
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    if media_type.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let problem = "{'loc': ['header', 'content-type'], 'msg': \"Unsupported Media Type: Only 'application/json' is allowed\", 'type': 'value_error'}";
    Err(ApiError::Validation(format!(
        "1 validation error:\n  {problem} [{problem}]"
    )))
}
