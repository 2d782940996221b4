//! The trainer's side: weights, replay payloads, and the teardown's deadlines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::Rules;
use crate::api::values::ClaimPath;

/// How weight versions come in between steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Trainer {
    /// The driver serves the trainer: next step, samples, weight versions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub service: bool,
    /// The driver waits for the next checkpoint in a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_directory: Option<ClaimPath>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema).rule(
        "(has(self.service) && self.service) != has(self.checkpointDirectory)",
        "set exactly one of service: true and checkpointDirectory, or remove trainer",
    );
}

/// Payloads that are recorded for the trainer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Replay {
    /// Records the experts that each token was routed to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub routed_experts: bool,
    /// Records the tokens that sparse attention chose.
    #[serde(rename = "indexerTopK", skip_serializing_if = "std::ops::Not::not")]
    pub indexer_top_k: bool,
}

/// Deadlines of the teardown ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Teardown {
    /// Time in which work that is no longer needed may still finish by itself and is collected, in seconds. Default: 60.
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_seconds: i32,
    /// Longest time of the agent's abort hook, in seconds. Default: 30.
    #[schemars(range(min = 1, max = 86_400))]
    pub abort_hook_seconds: i32,
}

impl Default for Teardown {
    fn default() -> Self {
        Self {
            drain_seconds: 60,
            abort_hook_seconds: 30,
        }
    }
}
