//! Generate functions: how one prompt copy becomes samples.
//!
//! A generate function gets the sample as it is (fresh, or with what an earlier step generated) and gives back one or several
//! samples and how the execution ended. It never fails: whatever goes wrong is an end that the batch loop knows what to do with.

mod agentic;
mod budget;
mod chat_fields;
mod prompt;
mod request_kwargs;
mod single_turn;
mod unserved;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rollout_engine::{Blame, Company, Reach, SampleEnd};
use rollout_session::{Sample, SampleStatus};
use sglang_client::Prompt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use agentic::AgenticFn;
pub use budget::{Budget, remaining};
pub use chat_fields::CHAT_FIELDS;
pub use prompt::{PromptError, PromptMaker};
pub use request_kwargs::{chat_request_kwargs, sampling_params};
pub use single_turn::SingleTurnFn;

/// What a generate function gets.
#[derive(Debug, Clone)]
pub struct GenerateInput {
    /// The sample; status pending, or aborted with what it has.
    pub sample: Sample,
    /// What `/generate` gets; an agent gets the sample's own prompt.
    pub prompt: Option<Arc<Prompt>>,
    /// Position in its group.
    pub slot: u32,
    /// Step of the job.
    pub step: u32,
    /// Told when the sample is no longer wanted: give back what there is, soon.
    pub cancel: CancellationToken,
    /// Who still answers: nobody is waited for who was found silent.
    pub reach: watch::Receiver<Reach>,
    /// With whom an agent may share its process.
    pub company: Company,
    /// Whose failure it is when its agent runs out of memory.
    pub out_of_memory: Blame,
}

/// What it gives back.
#[derive(Debug, Clone)]
pub struct Generated {
    /// At least one sample for a result; none when there is nothing to keep.
    pub samples: Vec<Sample>,
    /// How the execution ended.
    pub end: SampleEnd,
    /// For people, when something went wrong.
    pub problem: Option<String>,
    /// How a session ended, for the counters.
    pub session: Option<SessionTally>,
}

/// Counters of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionTally {
    /// Ended by itself.
    Completed,
    /// The agent failed.
    AgentFailed,
    /// Ended from outside.
    Aborted,
    /// Cut at a limit.
    Truncated,
    /// The machinery failed.
    InfraFailed,
}

impl Generated {
    pub(crate) fn infra(cause: impl Into<String>, problem: &dyn fmt::Display) -> Self {
        Self {
            samples: Vec::new(),
            end: SampleEnd::Infra {
                cause: cause.into(),
            },
            problem: Some(problem.to_string()),
            session: Some(SessionTally::InfraFailed),
        }
    }

    /// No engine took it.
    fn unserved(cause: &str, problem: &dyn fmt::Display) -> Self {
        Self {
            end: SampleEnd::Unserved {
                cause: cause.to_owned(),
            },
            ..Self::infra(cause, problem)
        }
    }

    fn rejected(reason: &str, problem: &dyn fmt::Display) -> Self {
        Self {
            samples: Vec::new(),
            end: SampleEnd::Rejected {
                reason: reason.to_owned(),
            },
            problem: Some(problem.to_string()),
            session: None,
        }
    }

    pub(crate) fn aborted(samples: Vec<Sample>, tokens: u64) -> Self {
        Self {
            samples,
            end: SampleEnd::Aborted { tokens },
            problem: None,
            session: Some(SessionTally::Aborted),
        }
    }
}

/// One of the generate functions.
#[derive(Debug)]
pub enum GenerateFn {
    /// One `/generate` request.
    SingleTurn(SingleTurnFn),
    /// An agent in a session.
    Agentic(AgenticFn),
}

impl GenerateFn {
    /// Runs it.
    pub async fn run(&self, input: GenerateInput) -> Generated {
        match self {
            Self::SingleTurn(function) => function.run(input).await,
            Self::Agentic(function) => function.run(input).await,
        }
    }

    /// Whether a sample that was cut off can be continued.
    pub fn resumes(&self) -> bool {
        matches!(self, Self::SingleTurn(_))
    }
}

/// Checks every sample; a broken one makes the execution an infrastructure failure, never a wrong row.
fn checked(generated: Generated) -> Generated {
    let broken = generated
        .samples
        .iter()
        .find_map(|sample| sample.validate().err());
    match broken {
        Some(error) => Generated::infra("invalid_sample", &error),
        None => generated,
    }
}

/// Zeroes the mask over what an older policy generated.
fn mask_off_policy(sample: &mut Sample) {
    if sample.response_length > 0 {
        sample.loss_mask = Some(vec![0; sample.response_length]);
        if sample.rollout_log_probs.is_some() {
            sample.rollout_log_probs = Some(vec![0.0; sample.response_length]);
        }
    }
}

/// Applies `maskOffPolicy` to a sample of an earlier step, finished or not.
pub fn resume(sample: &mut Sample, mask: bool) {
    if mask {
        mask_off_policy(sample);
    }
}

/// A fresh sample of a group.
pub fn fresh(row: &crate::dataset::PromptRow, slot: u32) -> Sample {
    Sample {
        group_index: Some(row.group_index),
        index: Some(row.first_sample_index + i64::from(slot)),
        prompt: row.prompt.clone(),
        label: row.label.clone(),
        metadata: row.metadata.clone(),
        status: SampleStatus::Pending,
        ..Sample::default()
    }
}

/// Waits until it is as bad as that.
pub(crate) async fn reaches(mut reach: watch::Receiver<Reach>, bad: Reach) {
    // Without a sender the run is over, and with it this task.
    if reach.wait_for(|now| *now >= bad).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How long the engine has to answer an abort before we stop waiting for its terminal reply.
const ABORT_PATIENCE: Duration = Duration::from_secs(10);
