//! What an engine says of itself before it is asked for a stream.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::{Engine, Upstream};

/// The part of `/model_info` that we use. SGLang names its parsers there since it has ids in its chat streams (0.5.23).
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ModelInfo {
    #[serde(default)]
    pub(crate) weight_version: Option<String>,
    #[serde(default)]
    reasoning_parser: Value,
    #[serde(default)]
    tool_call_parser: Value,
}

impl ModelInfo {
    /// Whether its chat stream has the log-probability of every token: without a parser those of steps without new text are lost.
    pub(crate) fn streams_all_tokens(&self) -> bool {
        self.reasoning_parser.is_string() || self.tool_call_parser.is_string()
    }
}

impl Upstream {
    /// Asks an engine; `None` when it does not say, or not in time.
    pub(crate) async fn model_info(&self, engine: &Engine) -> Option<ModelInfo> {
        let path = PathAndQuery::from_static("/model_info");
        let answer = self.control(engine, Method::GET, path, Bytes::new()).await;
        let (status, body) = answer.ok()?;
        if status != StatusCode::OK {
            return None;
        }
        serde_json::from_slice(&body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::ModelInfo;

    #[test]
    fn an_engine_with_a_parser_streams_all_tokens() {
        let streams = |text: &str| {
            let info: ModelInfo = serde_json::from_str(text).unwrap();
            info.streams_all_tokens()
        };
        assert!(streams(
            r#"{"tool_call_parser": "qwen", "reasoning_parser": null}"#
        ));
        assert!(streams(
            r#"{"tool_call_parser": null, "reasoning_parser": "qwen3"}"#
        ));
        assert!(!streams(
            r#"{"tool_call_parser": null, "reasoning_parser": null}"#
        ));
        // Before 0.5.23.
        assert!(!streams(r#"{"weight_version": "1"}"#));
    }
}
