//! Evaluation between steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::reward::Reward;
use super::sampling::SamplingOverride;
use crate::api::values::{Parameters, int};

/// Evaluation between steps, through the same engine and the same agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evaluation {
    /// Steps from one evaluation to the next. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub every_steps: i32,
    /// Leaves out the evaluation before the first step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_first: bool,
    /// The sets that are evaluated, each under a name of its own.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub datasets: Vec<EvaluationDataset>,
}

/// One evaluation set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationDataset {
    /// Its name, in metrics and output.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    )]
    pub name: String,
    /// Where its prompts come from.
    pub dataset: Dataset,
    /// Samples of each prompt. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub samples_per_prompt: i32,
    /// Sampling parameters in place of the job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingOverride>,
    /// Reward in place of the job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<Reward>,
    /// Merged into the metadata of each sample.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub metadata: Parameters,
}
