//! How a sample is scored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plugins::PluginRef;
use crate::api::rules::{Rules, undescribed};
use crate::api::values::Template;

/// How a sample is scored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Reward {
    /// Who scores. None: nobody, the reward is null. Agent: the agent, by the reward that it returns. Math: 1 when the last \boxed{} of the answer is
    /// the label, else 0. Plugin: a Python function. The others are not built yet. Default: None.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<RewardType>,
    /// Which entry of a reward that is an object counts; none: rewards are numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub key: Option<String>,
    /// Scores all samples of a group in one call, not one by one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// Scores only what is in the last \boxed{} of the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub boxed: bool,
    /// The service of type Remote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteReward>,
    /// The function of type Plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<RewardPlugin>,
    /// The container of type Verifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifier: Option<Verifier>,
}

impl Reward {
    /// Who scores.
    pub fn kind(&self) -> RewardType {
        self.type_.unwrap_or_default()
    }
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .field(
            "remote",
            "has(self.remote) == (has(self.type) && self.type == 'Remote')",
            "type Remote needs remote.url, and no other type has remote",
        )
        .field(
            "plugin",
            "has(self.plugin) == (has(self.type) && self.type == 'Plugin')",
            "type Plugin needs plugin.path, and no other type has plugin",
        )
        .field(
            "verifier",
            "has(self.verifier) == (has(self.type) && self.type == 'Verifier')",
            "type Verifier needs verifier.template, and no other type has verifier",
        )
        .field(
            "group",
            "!(has(self.group) && self.group) || (has(self.type) && self.type in ['Plugin', 'Remote'])",
            "only type Plugin and Remote can score a whole group: remove group, or change type",
        );
}

/// Who scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum RewardType {
    /// Nobody.
    #[default]
    None,
    /// The agent itself, in its result.
    Agent,
    /// The boxed answer against the label, as mathematics.
    Math,
    /// As Math, on what follows the reasoning.
    DeepScaler,
    /// As Math, on what follows Gemma's channel mark.
    GemmaMath,
    /// `Answer:` on the last line.
    Dapo,
    /// Overlap of words.
    F1,
    /// The letter of a multiple choice.
    Gpqa,
    /// An HTTP service.
    Remote,
    /// A Python function.
    Plugin,
    /// A container that looks at what the agent left.
    Verifier,
    /// 0 or 1 at random.
    Random,
    /// 0 or 1 by a hash of the sample.
    DeterministicRandom,
}

/// A reward service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteReward {
    /// URL that samples are posted to.
    #[schemars(length(max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// Longest time of one call, in seconds. Default: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i32>,
    /// Samples in one call. Default: 1, posted as an object, not as a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch: Option<i32>,
}

/// A reward function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RewardPlugin {
    /// The function, as module.function: takes (args, sample) and returns a number or an object; with group, (args, samples) and a list.
    pub path: PluginRef,
    /// Longest time of one call, in seconds. Default: 120.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i32>,
}

/// A container that scores what the agent left, out of the agent's reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verifier {
    /// Pod template with a container called verifier.
    pub template: Template,
    /// Longest time of one verification, in seconds. Default: 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i32>,
}
