//! Rewards of a slot or of a whole group, in a task of their own.

use std::sync::Arc;
use std::time::Duration;

use rollout_session::{Sample, SampleStatus};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::reward::Rewards;

/// Why samples have no rewards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unscored {
    /// These have none; others may.
    Failed(String),
    /// The reward function cannot be called at all.
    Unusable(String),
}

/// The pool that rewards are computed on.
#[derive(Debug, Clone)]
pub(super) struct Scorer {
    pub(super) rewards: Arc<Rewards>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) within: Duration,
}

impl Scorer {
    /// One reward per sample; `None` for a sample that keeps what it has: it was aborted, or has its reward.
    pub(super) async fn score(&self, samples: Vec<Sample>) -> Result<Vec<Option<Value>>, Unscored> {
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(Unscored::Failed("no reward worker".into()));
        };
        let wanted: Vec<bool> = samples.iter().map(wants_reward).collect();
        let to_score: Vec<Sample> = samples
            .into_iter()
            .zip(&wanted)
            .filter_map(|(sample, wanted)| wanted.then_some(sample))
            .collect();
        let scored = tokio::time::timeout(self.within, self.rewards.score(&to_score))
            .await
            .map_err(|_| {
                let limit = self.within.as_secs_f64();
                Unscored::Failed(format!("no reward within {limit} s"))
            })?;
        let mut scored = scored.into_iter();
        let mut rewards = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            if !wanted {
                rewards.push(None);
                continue;
            }
            match scored.next() {
                Some(Ok(reward)) => rewards.push(Some(reward)),
                Some(Err(error)) if error.is_unusable() => {
                    return Err(Unscored::Unusable(error.to_string()));
                }
                Some(Err(error)) => return Err(Unscored::Failed(error.to_string())),
                None => return Err(Unscored::Failed("fewer rewards than samples".into())),
            }
        }
        Ok(rewards)
    }
}

fn wants_reward(sample: &Sample) -> bool {
    sample.reward.is_null()
        && !matches!(
            sample.status,
            SampleStatus::Aborted | SampleStatus::Failed | SampleStatus::Pending
        )
}
