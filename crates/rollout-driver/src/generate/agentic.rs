//! `agentic`: a session per sample; the agent talks to the router, the router keeps the tokens.

use std::time::Duration;

use rollout_engine::{Blame, Company, SampleEnd};
use rollout_session::{Collected, Sample, SampleStatus, short_id};
use serde_json::{Map, Value, json};
use sglang_client::{ClientError, Fault};

use super::unserved::{is_unserved, is_unserved_turn};
use super::{
    GenerateInput, Generated, SessionTally, chat_request_kwargs, checked, sampling_params,
};
use crate::config::{Agentic, Sampling, SamplingPolicy};
use crate::ledger::Op;
use crate::router::{CreateSession, Outcome, OutcomeFeed, OutcomeKind, RouterClient, SessionEnd};

/// Slack of our own deadline over those that the launcher and the router enforce.
const SLACK: Duration = Duration::from_mins(1);

/// What a launcher says in the metadata when the agent itself cannot run (docs/protocol.md section 2).
const LOAD_FAILED: &str = "agent_load_failed";

/// Whose doing that is, where the launcher knows: `agent`.
const LOAD_FAULT: &str = "agent_load_fault";

/// Cause of a sample whose agent could not be loaded.
const NOT_LOADED: &str = "agent_not_loaded";

/// What a launcher says in the metadata when a process that ran other sessions too died; also the cause of such a sample.
const SHARED_DEATH: &str = "shared_process_died";

/// What is said in the metadata when the kernel killed the agent for want of memory; also the cause of such a sample.
const OUT_OF_MEMORY: &str = "out_of_memory";

/// What is said in the metadata when a container that the agent works in was started again; also the cause of such a sample.
const SANDBOX_FAILED: &str = "sandbox_failed";

/// Cause of a sample whose session ended after a turn that an engine failed.
const ENGINE_FAILED: &str = "engine_failed";

/// Keys that the router sets itself in every chat request.
const ROUTERS_OWN: [&str; 1] = ["no_stop_trim"];

/// Entries of the session's metadata that stay out of the samples: the ids are the samples' own.
const LEFT_OUT: [&str; 1] = ["accumulated_token_ids"];

/// What a sample's metadata says about how its session ended: an agent's own words under these names are left out.
const OUR_OWN: [&str; 6] = [
    "agent_outcome",
    "agent_exit_code",
    "agent_signal",
    "agent_error",
    "agent_log_tail",
    "empty_reason",
];

/// The generate function.
pub struct AgenticFn {
    /// The router.
    pub router: RouterClient,
    /// What ended.
    pub feed: OutcomeFeed,
    /// The spec.
    pub spec: Agentic,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Token budget of a session, where the spec of the agents has none.
    pub max_context: Option<i64>,
    /// How long a session may wait for an agent.
    pub queue: Duration,
    /// Deadline of a collection.
    pub collect: Duration,
    /// Keeps book of open sessions.
    pub book: Box<dyn Fn(Op) + Send + Sync>,
}

impl std::fmt::Debug for AgenticFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgenticFn").finish_non_exhaustive()
    }
}

impl AgenticFn {
    /// Runs it.
    pub async fn run(&self, input: GenerateInput) -> Generated {
        let session = self.session(&input);
        let created = match self.router.create(&session).await {
            Ok(created) => created,
            Err(error) => {
                return match error.fault() {
                    Fault::Closed => Generated::aborted(Vec::new(), 0),
                    Fault::Request => Generated::rejected("session_refused", &error),
                    Fault::Server if is_unserved(&error) => {
                        Generated::unserved(error.label(), &error)
                    }
                    Fault::Server => Generated::infra(error.label(), &error),
                };
            }
        };
        let id = created.session_id;
        (self.book)(Op::SessionOpened { id: id.clone() });
        let ended = self.feed.wait_for(&id, created.session_server_instance_id);
        let patience = self.queue + Duration::from_secs(self.spec.session_deadline_seconds) + SLACK;
        let end = tokio::select! {
            end = ended => end.ok(),
            () = tokio::time::sleep(patience) => None,
            () = input.cancel.cancelled() => None,
        };
        let cancelled = input.cancel.is_cancelled();
        self.feed.forget(&id);
        let generated = match end {
            Some(SessionEnd::Lost(cause)) => {
                Generated::infra(cause, &"the session is gone with its router")
            }
            Some(SessionEnd::Outcome(mut outcome)) => {
                blame(&mut outcome, input.out_of_memory);
                match nobodys_result(&outcome, &self.feed) {
                    Some(lost) => lost,
                    None => self.collect(&id, &input.sample, Some(&outcome)).await,
                }
            }
            None if cancelled => self.collect(&id, &input.sample, None).await,
            None => Generated::infra("session_silent", &"no outcome within its deadline"),
        };
        if let Err(error) = self.router.delete(&id).await {
            tracing::warn!(%error, session = short_id(&id), "a session was not deleted");
        } else {
            (self.book)(Op::SessionClosed { id });
        }
        generated
    }

    fn session(&self, input: &GenerateInput) -> CreateSession {
        let sample = &input.sample;
        let kwargs = chat_request_kwargs(&sampling_params(&self.sampling, input.slot));
        let policy = match self.spec.sampling_policy {
            SamplingPolicy::Default => "Default",
            SamplingPolicy::Pin => "Pin",
        };
        let mut metadata = sample.metadata.clone();
        if self.spec.expose_label {
            metadata.insert("label".to_owned(), sample.label.clone());
        }
        CreateSession {
            job: self.router.job().to_owned(),
            rollout_id: input.step,
            prompt: sample.prompt.clone(),
            sampling: json!({ "policy": policy, "params": router_params(&kwargs) }),
            request_kwargs: kwargs,
            max_seq_len: self.max_seq_len(),
            #[expect(
                clippy::cast_precision_loss,
                reason = "a deadline is far below 2^52 seconds"
            )]
            deadline_seconds: self.spec.session_deadline_seconds as f64,
            metadata,
            assign: true,
            alone: input.company == Company::Alone,
            idempotency_key: format!("{:032x}", rand::random::<u128>()),
        }
    }

    fn max_seq_len(&self) -> Option<i64> {
        self.spec.max_sequence_tokens.or(self.max_context)
    }

    /// Collects after success and after failure alike. `None` for a session that we cancelled.
    async fn collect(&self, id: &str, base: &Sample, outcome: Option<&Outcome>) -> Generated {
        let collected = match self
            .router
            .samples(id, self.max_seq_len(), self.collect)
            .await
        {
            Ok(collected) => collected,
            Err(error) => return not_collected(&error),
        };
        let was_aborted = outcome.is_none_or(|outcome| outcome.outcome == OutcomeKind::Aborted);
        let samples = assemble(base, collected, outcome);
        let tokens = samples
            .iter()
            .map(|sample| sample.trained_tokens() as u64)
            .sum();
        let end = if was_aborted {
            SampleEnd::Aborted { tokens }
        } else {
            SampleEnd::Finished {
                scorable: samples
                    .iter()
                    .any(|sample| sample.status != SampleStatus::Aborted),
                tokens,
            }
        };
        checked(Generated {
            session: Some(tally(outcome, &samples)),
            samples,
            end,
            problem: outcome.and_then(|outcome| outcome.error.clone()),
        })
    }
}

/// What happens to an agent again wherever it runs is its own doing.
fn blame(outcome: &mut Outcome, out_of_memory: Blame) {
    if out_of_memory == Blame::Agent
        && outcome.outcome == OutcomeKind::InfraFailed
        && says(outcome, OUT_OF_MEMORY)
    {
        outcome.outcome = OutcomeKind::AgentFailed;
    }
}

/// Whether this is marked in the metadata of a session's end.
fn says(outcome: &Outcome, mark: &str) -> bool {
    let metadata = outcome.metadata.as_ref();
    metadata.and_then(|said| said.get(mark)) == Some(&Value::Bool(true))
}

/// The end of a session that says nothing about the policy: the machinery failed it, or an engine failed its last turn, whatever the
/// agent made of that. `None` for a result, and for a session that was ended from outside.
fn nobodys_result(outcome: &Outcome, feed: &OutcomeFeed) -> Option<Generated> {
    match (&outcome.engine_fault, outcome.outcome) {
        (_, OutcomeKind::Aborted)
        | (None, OutcomeKind::Completed | OutcomeKind::AgentFailed | OutcomeKind::Deadline) => None,
        (Some(fault), kind) => {
            let said = outcome
                .error
                .as_deref()
                .filter(|error| kind == OutcomeKind::InfraFailed && error.contains(&fault.message));
            let problem = said.map_or_else(
                || format!("{}: {}", fault.code, fault.message),
                str::to_owned,
            );
            Some(if is_unserved_turn(&fault.code, &fault.message) {
                Generated::unserved(ENGINE_FAILED, &problem)
            } else {
                Generated::infra(ENGINE_FAILED, &problem)
            })
        }
        (None, OutcomeKind::InfraFailed) => Some(lost(outcome, feed.agents_loaded())),
    }
}

/// A session that ended without a result. What no launcher could ever load will hardly load elsewhere; once agents have been loaded, it
/// is the place that fails, not the agent.
fn lost(outcome: &Outcome, agents_loaded: Option<bool>) -> Generated {
    let problem = outcome.error.as_deref().unwrap_or("no reason given");
    let said = |key| outcome.metadata.as_ref().and_then(|said| said.get(key));
    if says(outcome, OUT_OF_MEMORY) {
        let mut generated = Generated::infra(OUT_OF_MEMORY, &problem);
        generated.end = SampleEnd::OutOfMemory {
            cause: OUT_OF_MEMORY.to_owned(),
        };
        return generated;
    }
    if says(outcome, SHARED_DEATH) {
        let mut generated = Generated::infra(SHARED_DEATH, &problem);
        generated.end = SampleEnd::SharedDeath {
            cause: SHARED_DEATH.to_owned(),
        };
        return generated;
    }
    if says(outcome, SANDBOX_FAILED) {
        return Generated::infra(SANDBOX_FAILED, &problem);
    }
    if !says(outcome, LOAD_FAILED) {
        return Generated::infra("session_infra_failed", &problem);
    }
    let mut generated = Generated::infra(NOT_LOADED, &problem);
    let cause = NOT_LOADED.to_owned();
    let is_agents = said(LOAD_FAULT).and_then(Value::as_str) == Some("agent");
    generated.end = match agents_loaded {
        Some(true) => SampleEnd::Infra { cause },
        Some(false) if is_agents => SampleEnd::Unusable {
            cause,
            problem: in_one_line(problem),
        },
        _ => SampleEnd::Setup { cause },
    };
    generated
}

/// Of a traceback only what was raised at its end.
fn in_one_line(problem: &str) -> String {
    match problem.trim_end().rsplit_once('\n') {
        Some((_, raised)) => format!("the agent cannot be loaded: {}", raised.trim()),
        None => problem.to_owned(),
    }
}

fn not_collected(error: &ClientError) -> Generated {
    if error.status() == Some(404) {
        return Generated::infra("session_lost", error);
    }
    Generated::infra("collect_failed", error)
}

fn tally(outcome: Option<&Outcome>, samples: &[Sample]) -> SessionTally {
    match outcome.map(|outcome| outcome.outcome) {
        None | Some(OutcomeKind::Aborted) => SessionTally::Aborted,
        Some(OutcomeKind::AgentFailed) => SessionTally::AgentFailed,
        Some(OutcomeKind::InfraFailed) => SessionTally::InfraFailed,
        Some(OutcomeKind::Deadline) => SessionTally::Truncated,
        Some(OutcomeKind::Completed)
            if samples
                .iter()
                .any(|sample| sample.status == SampleStatus::Truncated) =>
        {
            SessionTally::Truncated
        }
        Some(OutcomeKind::Completed) => SessionTally::Completed,
    }
}

/// What the router fills in or pins: the same, but for the keys that are the router's own.
fn router_params(kwargs: &Map<String, Value>) -> Map<String, Value> {
    let mut params = kwargs.clone();
    params.retain(|key, _| !ROUTERS_OWN.contains(&key.as_str()));
    params
}

/// Puts what the router assembled onto copies of the sample that went in. Without anything there is one aborted copy.
fn assemble(base: &Sample, collected: Collected, outcome: Option<&Outcome>) -> Vec<Sample> {
    let Collected {
        samples,
        session_metadata,
        empty_reason,
    } = collected;
    let mut agent = outcome
        .and_then(|outcome| outcome.metadata.clone())
        .unwrap_or_default();
    agent.retain(|key, _| !OUR_OWN.contains(&key.as_str()));
    let several = samples.len() > 1;
    let place = |mut sample: Sample| {
        sample.group_index = base.group_index;
        sample.index = base.index;
        sample.rollout_id = if several {
            base.rollout_id.or(base.index)
        } else {
            base.rollout_id
        };
        sample.prompt = base.prompt.clone();
        sample.label = base.label.clone();
        let mut metadata = base.metadata.clone();
        metadata.extend(agent.clone());
        metadata.append(&mut sample.metadata);
        for (key, value) in &session_metadata {
            if !LEFT_OUT.contains(&key.as_str()) {
                metadata.insert(key.clone(), value.clone());
            }
        }
        note_outcome(&mut metadata, outcome);
        sample.non_generation_time = tool_time(&agent);
        sample.metadata = metadata;
        sample
    };
    if samples.is_empty() {
        let mut empty = place(Sample::default());
        empty.status = SampleStatus::Aborted;
        if let Some(reason) = empty_reason {
            empty.metadata.insert("empty_reason".into(), json!(reason));
        }
        return vec![empty];
    }
    samples.into_iter().map(place).collect()
}

/// What the trainer should know of an agent that did not end well.
fn note_outcome(metadata: &mut Map<String, Value>, outcome: Option<&Outcome>) {
    let Some(outcome) = outcome else {
        metadata.insert("agent_outcome".into(), json!("aborted"));
        return;
    };
    let name = match outcome.outcome {
        OutcomeKind::Completed => return,
        OutcomeKind::AgentFailed => "agent_failed",
        OutcomeKind::Deadline => "deadline",
        OutcomeKind::Aborted => "aborted",
        OutcomeKind::InfraFailed => "infra_failed",
    };
    metadata.insert("agent_outcome".into(), json!(name));
    let mut note = |key: &str, value: Option<Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            metadata.insert(key.to_owned(), value);
        }
    };
    note("agent_exit_code", outcome.exit_code.map(Value::from));
    note("agent_signal", outcome.signal.clone());
    note("agent_error", outcome.error.clone().map(Value::from));
    note("agent_log_tail", outcome.log_tail.clone().map(Value::from));
}

/// `agent_metrics.total_tool_time`, as Miles reads it.
fn tool_time(agent: &Map<String, Value>) -> f64 {
    agent
        .get("agent_metrics")
        .and_then(|metrics| metrics.get("total_tool_time"))
        .and_then(Value::as_f64)
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use rollout_engine::SampleEnd;
    use serde_json::json;

    use super::*;

    fn outcome(kind: &str, more: &Value) -> Outcome {
        let mut outcome = json!({"session_id": "s", "outcome": kind});
        let (Value::Object(into), Value::Object(more)) = (&mut outcome, more) else {
            panic!("not an object: {more}");
        };
        into.extend(more.clone());
        serde_json::from_value(outcome).unwrap()
    }

    fn cause(outcome: &Outcome) -> Option<(String, String)> {
        let generated = nobodys_result(outcome, &OutcomeFeed::default())?;
        let (SampleEnd::Infra { cause }
        | SampleEnd::Unserved { cause }
        | SampleEnd::Setup { cause }) = generated.end
        else {
            panic!("no failure of the machinery: {:?}", generated.end);
        };
        Some((cause, generated.problem.unwrap_or_default()))
    }

    #[test]
    fn what_an_agent_says_about_its_own_end_does_not_count() {
        let forged = json!({"metadata": {
            "agent_outcome": "forged", "agent_exit_code": 0, "agent_signal": "KILL", "agent_error": "forged",
            "agent_log_tail": "forged", "empty_reason": "forged", "exit_status": "answered",
        }});
        let base = Sample::default();
        for (kind, expected) in [
            ("completed", json!({"exit_status": "answered"})),
            (
                "deadline",
                json!({"exit_status": "answered", "agent_outcome": "deadline"}),
            ),
        ] {
            let collected = Collected {
                samples: vec![Sample::default()],
                session_metadata: Map::new(),
                empty_reason: None,
            };
            let samples = assemble(&base, collected, Some(&outcome(kind, &forged)));
            assert_eq!(json!(samples[0].metadata), expected, "{kind}");
        }
    }

    #[test]
    fn a_session_whose_last_turn_an_engine_failed_is_no_result_unless_it_was_aborted() {
        let fault =
            json!({"engine_fault": {"code": "engine_silent", "message": "no probe for 60 s"}});
        for kind in ["completed", "agent_failed", "deadline", "infra_failed"] {
            let (cause, problem) = cause(&outcome(kind, &fault)).expect(kind);
            assert_eq!(cause, "engine_failed", "{kind}");
            assert_eq!(problem, "engine_silent: no probe for 60 s", "{kind}");
        }
        assert_eq!(cause(&outcome("aborted", &fault)), None);
    }

    #[test]
    fn without_a_fault_only_lost_sessions_are_nobodys_result() {
        for kind in ["completed", "agent_failed", "deadline", "aborted"] {
            let null = json!({"engine_fault": null});
            assert_eq!(cause(&outcome(kind, &null)), None, "{kind}");
            assert_eq!(cause(&outcome(kind, &json!({}))), None, "{kind}");
        }
        let (cause, _) = cause(&outcome("infra_failed", &json!({}))).expect("lost");
        assert_eq!(cause, "session_infra_failed");
    }

    #[test]
    fn a_session_that_the_router_ended_keeps_the_routers_words() {
        let said = "the engines failed 16 turns in a row: connection refused";
        let ended = outcome(
            "infra_failed",
            &json!({"error": said, "engine_fault": {"code": "no_engine", "message": "connection refused"}}),
        );
        let expected = ("engine_failed".to_owned(), said.to_owned());
        assert_eq!(cause(&ended), Some(expected));
    }

    #[test]
    fn an_agent_that_was_never_loaded_for_its_own_fault_is_unusable() {
        let said = |fault: &str| {
            let metadata = json!({"agent_load_failed": true, "agent_load_fault": fault});
            outcome(
                "infra_failed",
                &json!({"error": "ImportError: no", "metadata": metadata}),
            )
        };
        let end = |fault, loaded| lost(&said(fault), loaded).end;
        let cause = || NOT_LOADED.to_owned();
        let unusable = SampleEnd::Unusable {
            cause: cause(),
            problem: "ImportError: no".to_owned(),
        };
        assert_eq!(end("agent", Some(false)), unusable);
        for (fault, loaded) in [("agent", None), ("infra", Some(false)), ("later", None)] {
            let setup = SampleEnd::Setup { cause: cause() };
            assert_eq!(end(fault, loaded), setup, "{fault} {loaded:?}");
        }
        for fault in ["agent", "infra"] {
            let infra = SampleEnd::Infra { cause: cause() };
            assert_eq!(end(fault, Some(true)), infra, "it was loaded elsewhere");
        }
    }
}
