//! Rewards: what a sample is worth, or why that cannot be said.
//!
//! **Purpose.** [`Rewards::score`] gives each sample a reward, by the model that the job names.
//!
//! **Guarantees.** A reward is a finite number, or an object in which `reward.key` names one. Anything else is a [`RewardError`] that says what was
//! expected and what was there: never a silent zero. One bad sample does not touch its siblings. Grading runs on
//! blocking threads with bounded work per answer; plug-in calls have a deadline; nothing here blocks the runtime.
//!
//! **Caveat.** Group rewards (`batch`) are one call, so they fail together.

mod math;
mod plugin;
#[cfg(test)]
mod tests;
mod value;

use std::sync::Arc;

use rollout_session::Sample;
use serde_json::Value;

use crate::dataset::LabelRule;
use crate::plugins::PluginError;

pub use plugin::PluginReward;

/// How samples are scored.
#[derive(Debug)]
pub enum RewardModel {
    /// Not at all: the reward stays null.
    None,
    /// By the agent itself: the `reward` that it returned.
    Agent,
    /// 1 when the last `\boxed{...}` of the response is the label, else 0.
    Math,
    /// By a Python function of the user.
    Plugin(PluginReward),
}

/// A reward model, and which entry of a reward that is an object counts.
#[derive(Debug)]
pub struct Rewards {
    /// How samples are scored.
    pub model: RewardModel,
    /// `reward.key`; empty when rewards are numbers.
    pub key: String,
}

/// Why a sample has no reward.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RewardError {
    /// The label is not one that the model can compare.
    #[error("the label of sample {index} is {found}, expected {expected}")]
    Label {
        /// Index of the sample.
        index: i64,
        /// What it is.
        found: String,
        /// What to write instead.
        expected: &'static str,
    },
    /// The agent returned no reward.
    #[error(
        "the agent of sample {index} returned no reward: return {{\"reward\": <number>}}, or choose another reward.type"
    )]
    Missing {
        /// Index of the sample.
        index: i64,
    },
    /// A reward of the wrong type or shape.
    #[error("{origin} returned {found} as reward of sample {index}, expected {expected}")]
    Value {
        /// Who returned it.
        origin: String,
        /// Index of the sample.
        index: i64,
        /// What it is.
        found: String,
        /// What to return instead.
        expected: String,
    },
    /// Several samples were scored at once, and the answer is not one reward for each.
    #[error("{origin} returned {found}, expected a list of {expected} rewards")]
    Count {
        /// Who returned it.
        origin: String,
        /// What it is.
        found: String,
        /// How many samples there were.
        expected: usize,
    },
    /// The plug-in has no answer.
    #[error(transparent)]
    Plugin(Arc<PluginError>),
    /// A grader ended without an answer.
    #[error("the grader of sample {index} ended without an answer: {problem}")]
    Grader {
        /// Index of the sample.
        index: i64,
        /// What the runtime says.
        problem: String,
    },
}

impl RewardError {
    /// Whether the reward function cannot be called at all.
    pub fn is_unusable(&self) -> bool {
        matches!(self, Self::Plugin(error) if error.is_unusable())
    }

    /// Stable name for metrics and reasons.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Label { .. } => "label",
            Self::Missing { .. } => "missing",
            Self::Value { .. } => "value",
            Self::Count { .. } => "count",
            Self::Plugin(error) => error.label(),
            Self::Grader { .. } => "grader",
        }
    }
}

impl RewardModel {
    /// Name of the model in manifests of the output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Agent => "Agent",
            Self::Math => "Math",
            Self::Plugin(_) => "Plugin",
        }
    }

    /// What labels the data set must have for this model.
    pub fn label_rule(&self) -> LabelRule {
        match self {
            Self::Math => LabelRule::TextOrNumber,
            Self::None | Self::Agent | Self::Plugin(_) => LabelRule::Optional,
        }
    }
}

impl Rewards {
    /// Finds out at the start whether the model can work: a plug-in is imported.
    ///
    /// # Errors
    /// The plug-in cannot be imported, or its host cannot be reached.
    pub async fn prepare(&self) -> Result<(), RewardError> {
        match &self.model {
            RewardModel::Plugin(plugin) => plugin.load().await,
            RewardModel::None | RewardModel::Agent | RewardModel::Math => Ok(()),
        }
    }

    /// One reward, or the reason why there is none, per sample and in their order. Only samples that ended by themselves or at a limit
    /// are worth scoring; which those are is the caller's decision.
    pub async fn score(&self, samples: &[Sample]) -> Vec<Result<Value, RewardError>> {
        let unchecked = match &self.model {
            RewardModel::None => return samples.iter().map(|_| Ok(Value::Null)).collect(),
            RewardModel::Agent => samples.iter().map(agent_reward).collect(),
            RewardModel::Math => {
                futures_util::future::join_all(samples.iter().map(math_reward)).await
            }
            RewardModel::Plugin(plugin) => plugin.score(samples).await,
        };
        let origin = match &self.model {
            RewardModel::Plugin(plugin) => plugin.path.clone(),
            _ => "the agent".to_owned(),
        };
        let checked = samples.iter().zip(unchecked).map(|(sample, reward)| {
            value::checked(reward?, &self.key).map_err(|wrong| RewardError::Value {
                origin: origin.clone(),
                index: index_of(sample),
                found: wrong.found,
                expected: wrong.expected,
            })
        });
        checked.collect()
    }
}

/// A sample without an index is one of a test or a tool: -1 says so.
fn index_of(sample: &Sample) -> i64 {
    sample.index.unwrap_or(-1)
}

/// What the session's collection put into the sample, else what the agent returned.
fn agent_reward(sample: &Sample) -> Result<Value, RewardError> {
    if !sample.reward.is_null() {
        return Ok(sample.reward.clone());
    }
    let returned = sample
        .metadata
        .get("reward")
        .filter(|reward| !reward.is_null());
    returned.cloned().ok_or_else(|| RewardError::Missing {
        index: index_of(sample),
    })
}

async fn math_reward(sample: &Sample) -> Result<Value, RewardError> {
    let index = index_of(sample);
    let label = match &sample.label {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            return Err(RewardError::Label {
                index,
                found: value::described(other),
                expected: "a text or a number",
            });
        }
    };
    let response = sample.response.clone();
    let graded = tokio::task::spawn_blocking(move || {
        let expected = math::expected_answer(&label).map_err(|expected| RewardError::Label {
            index,
            found: value::described(&Value::String(label.clone())),
            expected,
        })?;
        Ok(math::is_correct(&response, expected))
    });
    let correct = graded.await.map_err(|error| RewardError::Grader {
        index,
        problem: error.to_string(),
    })??;
    Ok(Value::from(i64::from(correct)))
}
