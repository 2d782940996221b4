//! The sampling policy of a session: what the trainer wants sampled, whatever the agent asks for.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// What happens to sampling parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Policy {
    /// Fills in what the agent leaves out.
    #[default]
    Default,
    /// Replaces what the agent sends.
    Pin,
}

/// Policy and parameters, as chat fields.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sampling {
    #[serde(default)]
    pub(crate) policy: Policy,
    #[serde(default)]
    pub(crate) params: Map<String, Value>,
}

/// Keys of a chat request that are not sampling parameters.
const NOT_SAMPLING: [&str; 14] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "logprobs",
    "return_prompt_token_ids",
    "return_meta_info",
    "no_stop_trim",
    "input_ids",
    "rid",
    "n",
    "logprob_start_len",
];

impl Sampling {
    /// Refuses parameters that are none.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        for key in self.params.keys() {
            if key == "logprob_start_len" {
                return Err(ApiError::BadRequest(
                    "sampling.params.logprob_start_len: must not be set: it makes the engine compute log-probabilities of the whole prompt and defeats its prefix cache".to_owned(),
                ));
            }
            if NOT_SAMPLING.contains(&key.as_str()) {
                return Err(ApiError::BadRequest(format!(
                    "sampling.params.{key}: is not a sampling parameter"
                )));
            }
        }
        Ok(())
    }
}

/// Names of one and the same parameter.
pub(crate) fn same_parameter(left: &str, right: &str) -> bool {
    const LIMIT: [&str; 2] = ["max_tokens", "max_completion_tokens"];
    left == right || (LIMIT.contains(&left) && LIMIT.contains(&right))
}
