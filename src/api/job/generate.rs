//! How one sample is generated: exactly one of five ways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agentic::Agentic;
use super::plugins::PluginRef;
use crate::api::rules::Rules;
use crate::api::values::{ConfigMapKeyRef, Parameters, int};

/// How one sample is generated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Generate {
    /// One request to /generate. Nothing can be set: write singleTurn: {}.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub single_turn: Option<SingleTurn>,
    /// A loop of requests to /generate and tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_turn: Option<MultiTurn>,
    /// Answers of forced random lengths, to measure engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<Benchmark>,
    /// An agent that speaks OpenAI's chat protocol to a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agentic: Option<Agentic>,
    /// The user's own generate function, in the plug-in host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomGenerate>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema).exactly_one(
        &["singleTurn", "multiTurn", "benchmark", "agentic", "custom"],
        "set exactly one of singleTurn, multiTurn, benchmark, agentic and custom (write singleTurn: {} for the plainest)",
    );
}

/// One request to `/generate`. Nothing to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SingleTurn {}

/// A tool loop over `/generate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiTurn {
    /// Most requests of one sample. Default: 16.
    #[serde(default = "int::<16>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_turns: i32,
    /// Definitions of the tools; none: those of each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_specs: Option<ToolSpecs>,
    /// SGLang's parser for tool calls, as in qwen25.
    #[schemars(length(min = 1, max = 64))]
    pub tool_call_parser: String,
    /// What executes the calls.
    pub tools: ToolExecutor,
}

/// Definitions of tools, in OpenAI's form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = tool_specs_rules)]
pub struct ToolSpecs {
    /// A JSON list in a `ConfigMap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// A Python list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginRef>,
}

fn tool_specs_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).exactly_one(
        &["configMapKeyRef", "plugin"],
        "set exactly one of configMapKeyRef and plugin; leave toolSpecs out when each row has its tools",
    );
}

/// What executes tool calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecutor {
    /// A Python function, as module.function: takes (name, params) and returns a text.
    pub plugin: PluginRef,
}

/// Answers of forced random lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Benchmark {
    /// Bounds of the lengths.
    pub output_tokens: TokenRange,
    /// Seed of the lengths. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub seed: i64,
}

/// Bounds of a number of tokens, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = token_range_rules)]
pub struct TokenRange {
    /// Fewest tokens.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub min: i32,
    /// Most tokens.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max: i32,
}

fn token_range_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).field("max", "self.min <= self.max", "max must be at least min");
}

/// The user's own generate function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomGenerate {
    /// The function: `async def generate(input) -> GenerateFnOutput`.
    pub plugin: PluginRef,
    /// Its own flags, handed over as args.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}
