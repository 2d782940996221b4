//! The parts of a run that the spec chooses: rewards, generate function, what the teardown needs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::rungs::Climber;
use crate::config::{DriverConfig, seconds};
use crate::error::DriverError;
use crate::generate::{AgenticFn, GenerateFn, SingleTurnFn};
use crate::ledger::{Ledger, Op};
use crate::plugins::PluginClient;
use crate::reward::{PluginReward, RewardModel, Rewards};
use crate::router::{OutcomeFeed, RouterClient};

/// What the teardown ladder needs.
pub(super) fn climber(
    config: &DriverConfig,
    router: RouterClient,
    feed: &OutcomeFeed,
    sessions: Arc<Mutex<BTreeSet<String>>>,
) -> Climber {
    let agentic = config.spec.generate.agentic.as_ref();
    Climber {
        router,
        sessions,
        parameters: agentic
            .map(|agentic| agentic.parameters.clone())
            .unwrap_or_default(),
        feed: feed.clone(),
        agents: agentic.is_some(),
        hook: Duration::from_secs(config.spec.teardown.abort_hook_seconds),
        drain: Duration::from_secs(config.spec.teardown.drain_seconds),
        patience: Arc::default(),
    }
}

/// The `args` of rewards and filters.
pub(super) fn plugin_args(config: &DriverConfig) -> serde_json::Value {
    let mut args = serde_json::Map::new();
    args.insert(
        "rollout_batch_size".into(),
        config.spec.rollout.batch_size.into(),
    );
    args.insert(
        "n_samples_per_prompt".into(),
        config.spec.rollout.samples_per_prompt.into(),
    );
    if let Some(key) = &config.spec.reward.key {
        args.insert("reward_key".into(), key.clone().into());
    }
    if let Some(agentic) = &config.spec.generate.agentic {
        args.extend(agentic.parameters.clone());
    }
    args.into()
}

/// How samples are scored.
pub(super) fn rewards(
    config: &DriverConfig,
    client: Option<&Arc<PluginClient>>,
) -> Result<Rewards, DriverError> {
    let spec = &config.spec.reward;
    let refuse = |problem: String| DriverError::Config { problem };
    let model = match spec.kind.as_deref() {
        None | Some("None") => RewardModel::None,
        Some("Agent") => RewardModel::Agent,
        Some("Math") => RewardModel::Math,
        Some("Plugin") => {
            let (Some(plugin), Some(client)) = (&spec.plugin, client) else {
                return Err(refuse(
                    "spec.reward: type Plugin needs plugin.path and a plug-in host".into(),
                ));
            };
            RewardModel::Plugin(PluginReward {
                client: Arc::clone(client),
                path: plugin.path.clone(),
                args: plugin_args(config),
                batch: spec.group,
                deadline: plugin
                    .timeout_seconds
                    .map_or(seconds(config.timeouts.reward_seconds), |within| {
                        Duration::from_secs(within.into())
                    }),
            })
        }
        Some(other) => {
            return Err(refuse(format!(
                "spec.reward.type: {other} is not supported by this driver"
            )));
        }
    };
    Ok(Rewards {
        model,
        key: spec.key.clone().unwrap_or_default(),
    })
}

/// What a generate function is built from.
pub(super) struct Parts<'a> {
    pub(super) config: &'a DriverConfig,
    pub(super) router: &'a RouterClient,
    pub(super) feed: &'a OutcomeFeed,
    pub(super) ledger: &'a Arc<Ledger>,
    pub(super) sessions: &'a Arc<Mutex<BTreeSet<String>>>,
    /// Requests at once.
    pub(super) in_flight: u32,
}

/// How one sample is generated.
pub(super) fn generate_fn(parts: &Parts<'_>) -> GenerateFn {
    let Parts {
        config,
        router,
        feed,
        ledger,
        sessions,
        in_flight,
    } = parts;
    let spec = &config.spec;
    let Some(agentic) = &spec.generate.agentic else {
        return GenerateFn::SingleTurn(SingleTurnFn {
            router: (*router).clone(),
            sampling: spec.sampling.clone(),
            max_context: spec.max_context_tokens,
            permits: Arc::new(Semaphore::new(*in_flight as usize)),
            within: Duration::from_secs(spec.rollout.request_timeout_seconds.into()),
            pushback: seconds(config.timeouts.refill_seconds),
        });
    };
    let (ledger, sessions) = (Arc::clone(ledger), Arc::clone(sessions));
    GenerateFn::Agentic(AgenticFn {
        router: (*router).clone(),
        feed: (*feed).clone(),
        spec: agentic.clone(),
        sampling: spec.sampling.clone(),
        max_context: spec.max_context_tokens,
        queue: seconds(config.timeouts.queue_seconds),
        collect: seconds(config.timeouts.collect_seconds),
        book: Box::new(move |op| {
            match &op {
                Op::SessionOpened { id } => {
                    sessions.lock().insert(id.clone());
                }
                Op::SessionClosed { id } => {
                    sessions.lock().remove(id);
                }
                _ => {}
            }
            // A writer that has stopped says so itself.
            drop(ledger.submit(vec![op]));
        }),
    })
}
