//! Dynamic sampling: the native filters, and the user's.

use std::sync::Arc;
use std::time::Duration;

use rollout_engine::Verdict;
use rollout_engine::filter::{self, Scored};
use rollout_session::Sample;
use serde_json::Value;

use super::report::Decided;
use crate::config::{FilterSpec, FilterType};
use crate::error::{DriverError, chain};
use crate::output::encode;
use crate::plugins::{PluginCall, PluginClient, PluginError};

/// A filter that raised, or said nothing usable, drops the group with this reason.
const FILTER_ERROR: &str = "filter_error";

/// A group in which no sample has a token fails with this reason.
const NOTHING_GENERATED: &str = "nothing_generated";

/// A group in which some samples have no token is dropped with Miles's reason for it.
const SOME_EMPTY: &str = "group_has_aborted";

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

    /// Finds out at the start whether the user's function is there.
    pub(super) async fn prepare(&self) -> Result<(), PluginError> {
        match self {
            Self::Plugin(plugin) => {
                let call = PluginCall::Load { path: &plugin.path };
                plugin.client.call(call, plugin.within).await.map(drop)
            }
            Self::None | Self::NonzeroRewardStd | Self::NoAborted => Ok(()),
        }
    }

    /// The verdict about a group, whose samples are encoded when it may be kept. Never fails: what is not an answer, or a sample that
    /// breaks an invariant, drops the group with a reason.
    pub(super) async fn decide(&self, samples: Vec<Sample>, scored: &[Scored]) -> Decided {
        if let Some(decided) = unusable(&samples) {
            return decided;
        }
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

/// A sample without a token is no row to train on, whatever the filter says. A group that has nothing else failed: agents or engines are
/// broken, and the error budget must see it.
fn unusable(samples: &[Sample]) -> Option<Decided> {
    let is_empty = |sample: &&Sample| sample.tokens.is_empty();
    let verdict = match samples.iter().filter(is_empty).count() {
        0 => return None,
        empty if empty == samples.len() => Verdict::Fail {
            reason: NOTHING_GENERATED.into(),
        },
        _ => Verdict::Drop {
            reason: SOME_EMPTY.into(),
        },
    };
    let said = samples
        .iter()
        .filter(is_empty)
        .find_map(|sample| sample.metadata.get("agent_error").and_then(Value::as_str));
    Some(Decided {
        verdict,
        rows: None,
        problem: Some(said.map_or_else(
            || "no turn of the session was answered by an engine".to_owned(),
            |said| last_line(said).to_owned(),
        )),
    })
}

/// The line of a traceback that says what happened.
fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or(text)
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
