//! Simulated engines: latency model, replies, faults.
//!
//! `rollout-operator simulate-engine --config FILE` takes the same object with files in place of `ConfigMaps`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::{Rules, undescribed};
use crate::api::values::ConfigMapKeyRef;

/// An engine without a GPU that speaks SGLang's wire. Every field has a default of the simulator's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Simulator {
    /// Whose wire it speaks: SGLang 0.5.23 (Stock), or the fork that Miles installs (`MilesFork`). Default: Stock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Seed of the replies. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seed: Option<i64>,
    /// How many times faster than real time the engine runs, its time-outs included; times on the wire are simulated ones. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub time_scale: Option<i32>,
    /// Prompt tokens that prefill computes per second. Default: 8000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub prefill_tokens_per_second: Option<i32>,
    /// Generated tokens per second of one request alone. Default: 170.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub decode_tokens_per_second: Option<i32>,
    /// Percent by which every further running request lengthens each decode step. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub decode_slowdown_percent: Option<i32>,
    /// Requests that run at once; further ones wait. Default: 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running_requests: Option<i32>,
    /// Requests that may wait; one more is answered with 503. 0: no limit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_queued_requests: Option<i32>,
    /// Memory of running requests and of the prefix cache, in tokens; at least contextLength. Default: 524288.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub kv_cache_tokens: Option<i64>,
    /// What it answers; none: tokens drawn from the seed and the prompt. With local and nothing set, the oracle with half of the answers right, if
    /// the data set has a labelKey.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replies: Option<Replies>,
    /// What goes wrong, and how often. The first one that hits a request is the only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub faults: Vec<Fault>,
}

/// Whose wire a simulated engine speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum Profile {
    /// SGLang 0.5.23.
    #[default]
    Stock,
    /// Miles's fork: `token_id` in `logprobs.content`.
    MilesFork,
}

/// What a simulated engine answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = replies_rules)]
pub struct Replies {
    /// Answers prompts of a data set, right or wrong, in \boxed{} with some words before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle: Option<Oracle>,
    /// Answers by rules: the first whose regular expression matches the last message. It can drive an agent with tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// Random tokens with lengths from a heavy-tailed distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
}

fn replies_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).at_most_one(
        &["oracle", "script", "lengths"],
        "set at most one of oracle, script and lengths",
    );
}

/// Knows the labels of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Oracle {
    /// Of 100 answers, how many are right. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub correct_percent: Option<i32>,
    /// Words before the answer. Default: 4 to 40.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<WordRange>,
    /// Prompts and labels that it knows; none: the job's own data set, whose labelKey has to be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<OracleDataset>,
}

/// Bounds of a number of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = words_rules)]
pub struct WordRange {
    /// Fewest words. Default: 4.
    #[schemars(range(min = 0, max = 100_000))]
    pub min: i32,
    /// Most words. Default: 40.
    #[schemars(range(min = 0, max = 100_000))]
    pub max: i32,
}

impl Default for WordRange {
    fn default() -> Self {
        Self { min: 4, max: 40 }
    }
}

fn words_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).field(
        "max",
        "self.min <= self.max",
        "max must be at least min (defaults: min 4, max 40)",
    );
}

/// Prompts and labels that the oracle knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OracleDataset {
    /// JSONL rows.
    pub config_map: ConfigMapKeyRef,
    /// Key of the prompt in a row. Default: prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub prompt_key: Option<String>,
    /// Key of the label in a row. Default: label.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub label_key: Option<String>,
}

/// A YAML of scripted turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = script_rules)]
pub struct Script {
    /// The rules, as one key of a `ConfigMap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// The rules themselves, as a YAML text (write inline: | and indent them).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub inline: Option<String>,
}

fn script_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).exactly_one(
        &["configMapKeyRef", "inline"],
        "set exactly one of configMapKeyRef and inline",
    );
}

/// A log-normal distribution of answer lengths with stragglers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Lengths {
    /// Half of the answers are shorter, in tokens. Default: 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub median_tokens: Option<i32>,
    /// Standard deviation of the logarithm of the length, in percent; 0: all alike. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub sigma_percent: Option<i32>,
    /// Of 100 answers, how many are stragglers. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub tail_percent: Option<i32>,
    /// How many times longer a straggler is. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub tail_factor: Option<i32>,
}

/// A fault on demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Path of the requests that it hits, as in /generate; none: every path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = "^/"))]
    pub path: Option<String>,
    /// What happens to a request that is hit. Refuse: the connection is closed. Status500, Status503: that answer. Stall: nothing for a while.
    /// `SlowFirstByte`: the answer begins late. `CutBody`: the answer breaks off. `WrongCounts`: token counts that do not fit. `MissingIds`: no token ids. Death:
    /// the process ends.
    pub kind: FaultKind,
    /// Of 100 requests of the path, how many it hits. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<i32>,
    /// Requests of the path that are left alone first. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub after: Option<i64>,
    /// Requests that it hits in all; 0: no limit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub times: Option<i64>,
    /// How long a Stall or a `SlowFirstByte` holds a request, in simulated seconds (timeScale makes them shorter); none or 0: for ever. Other kinds
    /// do not use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub seconds: Option<i32>,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum FaultKind {
    /// The connection is closed without an answer.
    Refuse,
    /// Status 500.
    Status500,
    /// Status 503.
    Status503,
    /// No answer for a while.
    Stall,
    /// The answer begins late.
    SlowFirstByte,
    /// The connection ends in the middle of the body.
    CutBody,
    /// Token counts that do not fit the ids.
    WrongCounts,
    /// An answer without token ids.
    MissingIds,
    /// The process ends.
    Death,
}
