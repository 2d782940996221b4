//! A completion request: what it asks of the engine.

use std::sync::Arc;

use serde_json::Value;

use crate::http::App;
use crate::http::generate::{Prepared, Question, first_text, new_rid, outputs_of};
use crate::http::openai::Fields;
use crate::http::pydantic;
use crate::http::reply::ApiError;
use crate::wire::sampling::SamplingParams;

/// Tokens of a completion that names no limit.
const DEFAULT_MAX_TOKENS: i64 = 16;

/// A completion request whose types are right.
#[derive(Debug)]
pub(super) struct CompletionRequest(pub(super) Fields);

impl CompletionRequest {
    fn params(&self) -> Result<SamplingParams, ApiError> {
        let limit = self.0.integer("max_tokens").unwrap_or(DEFAULT_MAX_TOKENS);
        let mut params = self.0.sampling(Some(limit))?;
        params.json_schema = self.0.text("json_schema").map(str::to_owned);
        self.0.constrain(&mut params, schema_of)?;
        Ok(params)
    }

    fn prompts(&self, app: &App) -> Result<Vec<Arc<[u32]>>, ApiError> {
        let encode = |text: &str| {
            let ids = app.tokenizer.encode(text);
            ids.map(Arc::from)
                .map_err(|error| ApiError::Native(error.to_string()))
        };
        // what no vocabulary can have becomes what none has
        let id = |id: &Value| {
            let id = pydantic::integer(id).and_then(|id| id.as_u64());
            id.and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX)
        };
        let ids = |ids: &[Value]| ids.iter().map(id).collect::<Arc<[u32]>>();
        let is_empty = |part: &Value| match part {
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            // the id 0 is no part of a prompt to Python
            other => pydantic::integer(other).is_some_and(|id| id.as_i64() == Some(0)),
        };
        let prompt = self.0.get("prompt").unwrap_or(&Value::Null);
        match prompt {
            Value::String(text) if !text.is_empty() => Ok(vec![encode(text)?]),
            Value::Array(parts) if !parts.iter().all(is_empty) => match &parts[0] {
                Value::Array(_) => {
                    let lists = parts.iter().filter_map(Value::as_array);
                    Ok(lists.map(|list| ids(list)).collect())
                }
                _ if parts.iter().all(|part| pydantic::integer(part).is_some()) => {
                    Ok(vec![ids(parts)])
                }
                _ => parts.iter().filter_map(Value::as_str).map(encode).collect(),
            },
            _ => Err(ApiError::Native("Prompt cannot be empty".into())),
        }
    }

    /// Checks everything and plans the outputs, one per prompt and sample.
    pub(super) fn prepare(&self, app: &App) -> Result<Vec<Prepared>, ApiError> {
        let prompts = self.prompts(app)?;
        let params = self.params()?;
        self.0.check_features()?;
        params.verify(app.vocab_size)?;
        let samples = params.samples();
        let alone = prompts.len() * samples == 1;
        let rid = first_text(self.0.get("rid")).filter(|_| alone);
        let top = self.0.integer("logprobs");
        let logprobs = params.output_logprobs(top.is_some(), top, app.tokenizer.eos_ids());
        let mut prepared = Vec::new();
        for prompt in prompts {
            let rids = (0..samples).map(|_| rid.map_or_else(new_rid, Into::into));
            let question = Question::plain(prompt);
            prepared.extend(outputs_of(app, question, &params, &logprobs, rids)?);
        }
        Ok(prepared)
    }
}

fn schema_of(format: &Value) -> Result<&Value, ApiError> {
    match &format["json_schema"]["schema"] {
        Value::Null => {
            let message = "schema_ is required for json_schema response format request.";
            Err(ApiError::Native(message.into()))
        }
        schema => Ok(schema),
    }
}
