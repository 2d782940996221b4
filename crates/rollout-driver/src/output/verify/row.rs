//! What must hold for one row. Pure.

use rollout_session::{Sample, SampleStatus};
use serde_json::Value;

use super::file::Kind;
use crate::output::manifest::RewardInfo;
use crate::output::metrics::status_name;
use crate::output::rows::NOT_KEPT;

/// How far above 0 a log-probability may be: engines compute them in single precision or less.
const LOG_PROB_TOLERANCE: f64 = 1e-3;

/// A field and what is wrong with it.
pub(super) type Finding = (&'static str, String);

/// Everything that is wrong with a row by itself.
pub(super) fn findings(sample: &Sample, kind: Kind, reward: &RewardInfo) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |field, problem: String| findings.push((field, problem));
    if let Err(broken) = sample.validate() {
        add(broken.field, broken.problem);
    }
    for (field, value) in [("index", sample.index), ("group_index", sample.group_index)] {
        match value {
            None => add(field, "is missing".to_owned()),
            Some(negative) if negative < 0 => add(field, format!("is {negative}")),
            Some(_) => {}
        }
    }
    if let Some((at, value)) = positive_log_prob(sample) {
        add(
            "rollout_log_probs",
            format!("the entry at {at} is {value}, above 0"),
        );
    }
    match kind {
        Kind::Kept => kept_findings(sample, reward, &mut add),
        Kind::Extra if !sample.metadata.contains_key(NOT_KEPT) => {
            add(
                "metadata",
                format!("has no `{NOT_KEPT}`, so nothing says why the sample was not kept"),
            );
        }
        Kind::Extra => {}
    }
    findings
}

/// Metadata of a sample that an earlier step began; with `maskOffPolicy` it may train nothing.
const CARRIED_OVER: &str = "start_rollout_id";

fn positive_log_prob(sample: &Sample) -> Option<(usize, f64)> {
    let log_probs = sample.rollout_log_probs.as_ref()?;
    log_probs
        .iter()
        .copied()
        .enumerate()
        .find(|(_, value)| *value > LOG_PROB_TOLERANCE)
}

fn kept_findings(sample: &Sample, reward: &RewardInfo, add: &mut impl FnMut(&'static str, String)) {
    let ended = match sample.status {
        SampleStatus::Completed | SampleStatus::Truncated => true,
        SampleStatus::Aborted => false,
        SampleStatus::Pending | SampleStatus::Failed => {
            add(
                "status",
                format!(
                    "is {}, expected completed, truncated or aborted",
                    status_name(sample.status)
                ),
            );
            false
        }
    };
    if sample.tokens.is_empty() {
        add("tokens", "is empty".to_owned());
    } else if ended && sample.response_length == 0 {
        add(
            "response_length",
            format!("is 0, but the sample is {}", status_name(sample.status)),
        );
    } else if sample.status == SampleStatus::Completed
        && !sample.remove_sample
        && !sample.metadata.contains_key(CARRIED_OVER)
        && sample.trained_tokens() == 0
    {
        add(
            "loss_mask",
            "trains no token, but the sample is completed".to_owned(),
        );
    }
    if let Some(problem) = reward_problem(sample, reward) {
        add("reward", problem);
    }
}

fn reward_problem(sample: &Sample, reward: &RewardInfo) -> Option<String> {
    let RewardInfo { model, key } = reward;
    match &sample.reward {
        Value::Null if model == "None" => None,
        Value::Null => Some(format!("is null, but the job scores samples with {model}")),
        Value::Number(_) => None,
        Value::Object(_) if key.is_empty() => {
            Some("is an object, but no reward key names its entry".to_owned())
        }
        Value::Object(_) if sample.scalar_reward(key).is_some() => None,
        Value::Object(_) => Some(format!("is an object whose `{key}` is no number")),
        Value::Bool(_) | Value::String(_) | Value::Array(_) => {
            Some("is neither a number nor an object".to_owned())
        }
    }
}
