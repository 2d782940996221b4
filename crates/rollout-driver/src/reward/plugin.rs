//! Rewards by a Python function in the plug-in host.

use std::sync::Arc;
use std::time::Duration;

use rollout_session::Sample;
use serde_json::Value;

use super::{RewardError, value};
use crate::plugins::{PluginCall, PluginClient};

/// A reward function of the user.
#[derive(Debug, Clone)]
pub struct PluginReward {
    /// The host that runs it.
    pub client: Arc<PluginClient>,
    /// Path of the function, `module.function`.
    pub path: String,
    /// The job's parameters, `args` of the function.
    pub args: Value,
    /// Hand over all samples in one call, as group rewards need it; else one call per sample.
    pub batch: bool,
    /// Deadline of a call.
    pub deadline: Duration,
}

impl PluginReward {
    /// Imports the function.
    pub(super) async fn load(&self) -> Result<(), RewardError> {
        let call = PluginCall::Load { path: &self.path };
        match self.client.call(call, self.deadline).await {
            Ok(_signature) => Ok(()),
            Err(error) => Err(RewardError::Plugin(Arc::new(error))),
        }
    }

    /// The function's returns, one per sample, not checked yet.
    pub(super) async fn score(&self, samples: &[Sample]) -> Vec<Result<Value, RewardError>> {
        if !self.batch {
            let calls = samples.iter().map(|sample| self.score_one(sample));
            return futures_util::future::join_all(calls).await;
        }
        match self.call(samples).await {
            Ok(rewards) => rewards.into_iter().map(Ok).collect(),
            Err(error) => samples.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn score_one(&self, sample: &Sample) -> Result<Value, RewardError> {
        let rewards = self.call(std::slice::from_ref(sample)).await?;
        rewards
            .into_iter()
            .next()
            .ok_or_else(|| self.count(&Value::Array(Vec::new()), 1))
    }

    async fn call(&self, samples: &[Sample]) -> Result<Vec<Value>, RewardError> {
        if samples.is_empty() {
            return Ok(Vec::new());
        }
        let call = PluginCall::Reward {
            path: &self.path,
            args: &self.args,
            samples,
            batch: self.batch,
        };
        let result = self.client.call(call, self.deadline).await;
        match result.map_err(|error| RewardError::Plugin(Arc::new(error)))? {
            Value::Array(rewards) if rewards.len() == samples.len() => Ok(rewards),
            other => Err(self.count(&other, samples.len())),
        }
    }

    fn count(&self, found: &Value, expected: usize) -> RewardError {
        RewardError::Count {
            origin: self.path.clone(),
            found: value::described(found),
            expected,
        }
    }
}
