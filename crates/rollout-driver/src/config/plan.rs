//! From the spec to what the batch loop and the data set are told. Pure.

use std::path::Path;
use std::time::Duration;

use rollout_engine::{EngineConfig, Granularity, LadderConfig, Limits, Scoring, Surplus};

use super::rollout::GranularitySpec;
use super::spec::JobSpec;
use super::{DriverConfig, seconds};
use crate::dataset::{DatasetConfig, Keys, LabelRule, Rules, Source};
use crate::error::DriverError;

/// Sessions at once, where the spec does not say.
const SESSIONS: u32 = 256;

/// Requests per engine at once, where the spec does not say.
const REQUESTS_PER_ENGINE: u32 = 512;

/// The data set of a job.
///
/// # Errors
/// There is neither a file nor inline rows, or the slice is not one.
pub fn dataset_config(spec: &JobSpec, path: Option<&Path>) -> Result<DatasetConfig, DriverError> {
    let dataset = &spec.dataset;
    let source = match (path, &dataset.inline) {
        (Some(path), _) => Source::File(path.to_owned()),
        (None, Some(rows)) => Source::Inline(rows.clone()),
        (None, None) => {
            return Err(DriverError::Config {
                problem: "there is no data set: set dataset_path, or spec.dataset.inline".into(),
            });
        }
    };
    let slice = dataset
        .slice
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| DriverError::Config {
            problem: format!("spec.dataset.slice: {error}"),
        })?;
    Ok(DatasetConfig {
        source,
        rules: Rules {
            keys: Keys {
                prompt: dataset.prompt_key.clone(),
                label: Some(dataset.label_key.clone().unwrap_or_else(|| "label".into())),
                metadata: dataset.metadata_key.clone(),
                tools: dataset.tools_key.clone(),
            },
            label: label_rule(spec),
            require_messages: spec.generate.agentic.is_some(),
        },
        slice,
        shuffle_seed: dataset.shuffle.then_some(dataset.seed),
        samples_per_prompt: spec.rollout.samples_per_prompt,
    })
}

fn label_rule(spec: &JobSpec) -> LabelRule {
    match spec.reward.kind.as_deref() {
        Some("Math" | "DeepScaler" | "GemmaMath") => LabelRule::TextOrNumber,
        _ if spec.dataset.label_key.is_some() => LabelRule::Required,
        _ => LabelRule::Optional,
    }
}

/// The batch loop of a job. `rows` is one epoch, `engines` how many engines the router knows.
pub fn engine_config(config: &DriverConfig, rows: u64, engines: u32) -> EngineConfig {
    let spec = &config.spec;
    let rollout = &spec.rollout;
    let budget = rollout.error_budget;
    EngineConfig {
        steps: rollout.steps.max(1),
        target: rollout.batch_size,
        samples_per_prompt: rollout.samples_per_prompt,
        fetch: rollout
            .over_sampling
            .as_ref()
            .map_or(1, |over| over.batch_size.max(1)),
        granularity: match rollout.over_sampling.as_ref().and_then(|o| o.granularity) {
            Some(GranularitySpec::Sample) => Granularity::Sample,
            _ => Granularity::Group,
        },
        max_in_flight: max_in_flight(spec, engines.max(config.engines)),
        rows,
        partial: rollout.partial.is_some_and(|partial| partial.enabled),
        surplus: if spec.output.include_all {
            Surplus::Write
        } else {
            Surplus::Recycle
        },
        scoring: match spec.reward.kind.as_deref() {
            None | Some("None") => Scoring::None,
            Some(_) if spec.reward.group => Scoring::Group,
            Some(_) => Scoring::Sample,
        },
        limits: Limits {
            sample_refills: budget.retries_per_sample,
            group_tries: budget.retries_per_group + 1,
            infra_incidents: budget.infra_failures,
            bad_rows: budget.bad_rows,
            consecutive_group_failures: budget.consecutive_group_failures.max(1),
            // Twice through the data set, and never so few that chance alone could end the job.
            consecutive_filtered: rows.saturating_mul(2).max(1024),
            refill_backoff: seconds(config.timeouts.refill_seconds),
            ..Limits::default()
        },
        ladder: ladder(config),
    }
}

/// With agents, the hook and the drain are one call of the router, which returns when every session has ended; what is left to
/// drain then is only on its way to us.
fn ladder(config: &DriverConfig) -> LadderConfig {
    const REPORT: Duration = Duration::from_secs(4);
    const ON_ITS_WAY: Duration = Duration::from_secs(5);
    let teardown = config.spec.teardown;
    let drain = Duration::from_secs(teardown.drain_seconds);
    let hook = Duration::from_secs(teardown.abort_hook_seconds);
    let agentic = config.spec.generate.agentic.is_some();
    LadderConfig {
        hook: agentic.then(|| hook.max(drain) + REPORT),
        drain: if agentic { ON_ITS_WAY } else { drain },
        collect: seconds(config.timeouts.collect_seconds),
        ..LadderConfig::default()
    }
}

/// Samples in flight: sessions for agents, requests for the rest.
pub(crate) fn max_in_flight(spec: &JobSpec, engines: u32) -> u32 {
    let limits = spec.rollout.concurrency;
    if spec.generate.agentic.is_some() {
        return limits.sessions.unwrap_or(SESSIONS).max(1);
    }
    let requests = limits.requests_per_engine.unwrap_or(REQUESTS_PER_ENGINE);
    requests.saturating_mul(engines.max(1)).max(1)
}
