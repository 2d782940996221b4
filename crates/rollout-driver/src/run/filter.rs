//! Dynamic sampling: the native filters, and the user's.

use std::sync::Arc;
use std::time::Duration;

use rollout_engine::Verdict;
use rollout_engine::filter::{self, Scored};
use rollout_session::Sample;
use serde_json::Value;

use super::report::Decided;
use super::writing::chain;
use crate::config::{FilterSpec, FilterType};
use crate::error::DriverError;
use crate::output::encode;
use crate::plugins::{PluginCall, PluginClient};

/// A filter that raised, or said nothing usable, drops the group with this reason.
const FILTER_ERROR: &str = "filter_error";

/// The filter of a job.
#[derive(Debug)]
pub(super) enum GroupFilter {
    None,
    NonzeroRewardStd,
    NoAborted,
    Plugin(PluginFilter),
}

/// The user's function.
#[derive(Debug, Clone)]
pub(super) struct PluginFilter {
    pub(super) client: Arc<PluginClient>,
    pub(super) path: String,
    pub(super) args: Value,
    pub(super) within: Duration,
}

impl GroupFilter {
    pub(super) fn new(
        spec: Option<&FilterSpec>,
        client: Option<&Arc<PluginClient>>,
        args: Value,
        within: Duration,
    ) -> Result<Self, DriverError> {
        let Some(spec) = spec else {
            return Ok(Self::None);
        };
        Ok(match spec.kind {
            FilterType::None => Self::None,
            FilterType::NonzeroRewardStd => Self::NonzeroRewardStd,
            FilterType::NoAborted => Self::NoAborted,
            FilterType::Plugin => {
                let (Some(path), Some(client)) = (&spec.plugin, client) else {
                    return Err(DriverError::Config {
                        problem: "rollout.filter: type Plugin needs plugin and a plug-in host"
                            .into(),
                    });
                };
                Self::Plugin(PluginFilter {
                    client: Arc::clone(client),
                    path: path.clone(),
                    args,
                    within,
                })
            }
        })
    }

    /// The verdict about a group, whose samples are encoded when it may be kept. Never fails: what is not an answer, or a sample that
    /// breaks an invariant, drops the group with a reason.
    pub(super) async fn decide(&self, samples: Vec<Sample>, scored: &[Scored]) -> Decided {
        let (verdict, problem) = match self {
            Self::None => (Verdict::Keep, None),
            Self::NonzeroRewardStd => (filter::nonzero_reward_std(scored), None),
            Self::NoAborted => (filter::no_aborted(scored), None),
            Self::Plugin(plugin) => plugin.ask(&samples).await,
        };
        if verdict != Verdict::Keep {
            return Decided {
                verdict,
                rows: None,
                problem,
            };
        }
        let encoded = tokio::task::spawn_blocking(move || encode(&samples)).await;
        let problem = match encoded {
            Ok(Ok(rows)) => {
                return Decided {
                    verdict,
                    rows: Some(rows.into()),
                    problem,
                };
            }
            Ok(Err(error)) => chain(&error),
            Err(error) => error.to_string(),
        };
        Decided {
            verdict: Verdict::Drop {
                reason: "invalid_sample".into(),
            },
            rows: None,
            problem: Some(problem),
        }
    }
}

impl PluginFilter {
    /// Asks the user's function. Never fails: what is not an answer drops the group.
    async fn ask(&self, samples: &[Sample]) -> (Verdict, Option<String>) {
        let call = PluginCall::Filter {
            path: &self.path,
            args: &self.args,
            samples,
        };
        let error = match self.client.call(call, self.within).await {
            Ok(answer) => match verdict(&answer) {
                Some(verdict) => return (verdict, None),
                None => format!("{} returned {answer}, expected keep and reason", self.path),
            },
            Err(error) => error.to_string(),
        };
        let dropped = Verdict::Drop {
            reason: FILTER_ERROR.into(),
        };
        (dropped, Some(error))
    }
}

fn verdict(answer: &Value) -> Option<Verdict> {
    if answer.get("keep")?.as_bool()? {
        return Some(Verdict::Keep);
    }
    let reason = answer
        .get("reason")
        .and_then(Value::as_str)
        .unwrap_or("filtered");
    Some(Verdict::Drop {
        reason: reason.to_owned(),
    })
}
