//! Jobs whose samples come from agents.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rollout_driver::run::Driver;
use rollout_engine::Reason;
use rollout_session::SampleStatus;
use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};
use tokio::sync::{Barrier, watch};
use tokio_util::sync::CancellationToken;

use crate::agents::{Agents, Behaviour};
use crate::rig::{Job, Pool, SOON, SUMS, engine, eventually};

/// An agentic job with rewards that the agents report. `spec` is merged over its spec.
pub(crate) fn job(pool: &Pool, spec: &Value) -> Job {
    let rows: Vec<Value> = SUMS
        .iter()
        .map(|(prompt, label)| {
            json!({"prompt": [{"role": "user", "content": prompt}], "label": label, "metadata": {"task": "sum"}})
        })
        .collect();
    let mut job = Job::new(&pool.control_url, &json!({"dataset": {"inline": rows}}));
    job.config["spec"]["generate"] = json!({"agentic": {
        "agent": {"function": {"path": "agent.run"}},
        "sessionDeadlineSeconds": 30,
        "parameters": {"server": "http://harbor:11000"},
    }});
    job.config["spec"]["reward"] = json!({"type": "Agent"});
    crate::rig::merge(&mut job.config["spec"], spec);
    job
}

fn reward(value: f64) -> Behaviour {
    Behaviour::Chat(json!({"reward": value, "agent_metrics": {"total_tool_time": 1.5}}))
}

#[tokio::test]
async fn agents_make_samples_that_carry_their_reward_and_their_tool_time() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"sampling": {"minNewTokens": 1, "samplingSeed": 7}}),
    );
    let agents = Agents::start(&pool, "sums", 2, |_, _| reward(0.5));
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::TargetReached, "{}", job.last_word());
    let samples = job.samples(0);
    assert!(!samples.is_empty());
    for sample in &samples {
        assert_eq!(sample.reward, json!(0.5));
        assert_eq!(sample.metadata["task"], "sum");
        assert!((sample.non_generation_time - 1.5).abs() < 1e-9);
        assert!(sample.loss_mask.is_some());
        assert!(!sample.metadata.contains_key("accumulated_token_ids"));
    }
    let claims = agents.seen.claims.lock().clone();
    let kwargs = claims[0]["request_kwargs"].as_object().unwrap();
    let mut keys: Vec<&str> = kwargs.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "max_tokens",
            "min_tokens",
            "no_stop_trim",
            "seed",
            "skip_special_tokens",
            "temperature",
            "top_k",
            "top_p"
        ]
    );
    let status = job.last_word();
    assert_eq!(status["teardown"]["hook"], "NoHook");
    pool.stop().await;
}

#[tokio::test]
async fn a_policy_failure_is_a_result_with_its_cause_in_the_metadata() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({"reward": {"type": "Math"}}));
    let _agents = Agents::start(&pool, "sums", 2, |_, _| Behaviour::Fail);
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::TargetReached, "{}", job.last_word());
    for sample in job.samples(0) {
        assert_eq!(sample.metadata["agent_outcome"], "agent_failed");
        assert_eq!(sample.metadata["agent_exit_code"], 1);
        assert_eq!(sample.metadata["agent_error"], "Traceback: boom");
        assert!(sample.reward.is_number(), "it is scored");
    }
    assert_eq!(job.last_word()["progress"]["sessions"]["agentFailed"], 4);
    pool.stop().await;
}

#[tokio::test]
async fn a_lost_pod_costs_a_refill_and_never_scores() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({}));
    let _agents = Agents::start(&pool, "sums", 2, |n, _| {
        if n == 1 {
            Behaviour::PodLost
        } else {
            reward(1.0)
        }
    });
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::TargetReached, "{}", job.last_word());
    assert!(job.samples(0).iter().all(|s| s.reward == json!(1.0)));
    assert_eq!(job.last_word()["progress"]["sessions"]["infraFailed"], 1);
    pool.stop().await;
}

#[tokio::test]
async fn an_agent_that_runs_out_of_memory_again_has_failed_by_itself() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({"reward": {"type": "Math"}}));
    let _agents = Agents::start(&pool, "sums", 2, |_, _| Behaviour::OutOfMemory);
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert_eq!(result.reason, Reason::TargetReached, "{word}");
    let sessions = &word["progress"]["sessions"];
    assert_eq!(
        (&sessions["infraFailed"], &sessions["agentFailed"]),
        (&json!(4), &json!(4)),
        "each of four samples ran twice: {word}"
    );
    let failures = word["recentFailures"].as_array().unwrap();
    let count = |reason: &str| failures.iter().find(|failure| failure["reason"] == reason);
    assert_eq!(count("out_of_memory").unwrap()["count"], 4, "{word}");
    for sample in job.samples(0) {
        assert_eq!(sample.metadata["agent_outcome"], "agent_failed");
        assert_eq!(sample.metadata["out_of_memory"], true);
        assert!(sample.reward.is_number(), "it is scored");
    }
    pool.stop().await;
}

#[tokio::test]
async fn a_sandbox_that_died_is_told_by_its_name_and_never_scores() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({}));
    let _agents = Agents::start(&pool, "sums", 2, |n, _| {
        if n == 1 {
            Behaviour::SandboxFailed
        } else {
            reward(1.0)
        }
    });
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert_eq!(result.reason, Reason::TargetReached, "{word}");
    assert_eq!(word["progress"]["sessions"]["agentFailed"], 0, "{word}");
    assert_eq!(word["recentFailures"][0]["reason"], "sandbox_failed");
    pool.stop().await;
}

#[tokio::test]
async fn an_agent_that_does_nothing_is_an_aborted_sample_that_the_filter_sees() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"rollout": {"batchSize": 1, "filter": {"type": "NoAborted"}}}),
    );
    let _agents = Agents::start(&pool, "sums", 1, |n, _| {
        if n == 0 {
            Behaviour::Nothing
        } else {
            reward(1.0)
        }
    });
    job.run().await.unwrap();
    let ledger = &job.manifest().steps[0].ledger;
    assert_eq!(ledger.filtered["group_has_aborted"], 1);
    assert!(
        job.samples(0)
            .iter()
            .all(|s| s.status != SampleStatus::Aborted)
    );
    pool.stop().await;
}

#[tokio::test]
async fn surplus_sessions_are_torn_down_with_the_agents_hook() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"rollout": {"batchSize": 1, "overSampling": {"batchSize": 3}}}),
    );
    let agents = Agents::start(&pool, "sums", 6, |_, prompt| {
        if prompt == SUMS[0].0 {
            reward(1.0)
        } else {
            Behaviour::Hang
        }
    });
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::TargetReached, "{}", job.last_word());
    let word = job.last_word();
    assert_eq!(word["teardown"]["hook"], "HookSucceeded", "{word}");
    assert!(word["teardown"]["fencedSessions"].as_u64().unwrap() >= 1);
    let hooks = agents.seen.hooks.lock().clone();
    assert!(!hooks.is_empty());
    assert_eq!(hooks[0]["server"], "http://harbor:11000");
    assert_eq!(hooks[0]["rollout_id"], 0);
    let instance = &hooks[0]["session_server_instance_id"];
    assert!(instance.is_string());
    let port = pool.control_url.rsplit(':').next().unwrap();
    assert_eq!(
        hooks[0]["session_server_instance_ids"],
        json!({ port: instance })
    );
    assert!(!hooks[0]["session_ids"].as_array().unwrap().is_empty());
    let ledger = &job.manifest().steps[0].ledger;
    assert_eq!((ledger.kept, ledger.taken), (1, 3));
    assert_eq!(ledger.recycled.values().sum::<u64>(), 2);
    pool.stop().await;
}

#[tokio::test]
async fn a_hook_that_raises_is_recorded_and_fails_nothing() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"rollout": {"batchSize": 1, "overSampling": {"batchSize": 3}}}),
    );
    let _agents = Agents::start(&pool, "sums", 6, |_, prompt| {
        if prompt == SUMS[0].0 {
            reward(1.0)
        } else {
            Behaviour::HangAndRaise
        }
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let word = job.last_word();
    assert_eq!(word["teardown"]["hook"], "HookFailed");
    assert!(
        word["teardown"]["troubles"]
            .to_string()
            .contains("hook raised"),
        "{word}"
    );
    pool.stop().await;
}

#[tokio::test]
async fn between_steps_admission_opens_again() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({"rollout": {"steps": 2, "batchSize": 1}}));
    let _agents = Agents::start(&pool, "sums", 2, |_, _| reward(1.0));
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let manifest = job.manifest();
    assert_eq!(manifest.steps.len(), 2);
    assert!(!job.samples(1).is_empty());
    pool.stop().await;
}

#[tokio::test]
async fn sessions_of_a_killed_driver_are_ended_before_the_next_one_begins() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({}));
    let agents = Agents::start(&pool, "sums", 4, |n, _| {
        if n < 4 { Behaviour::Hang } else { reward(1.0) }
    });
    {
        let driver = Driver::start(job.config()).await.unwrap();
        let run = driver.run(CancellationToken::new());
        tokio::select! {
            _ = run => panic!("the agents hang"),
            () = eventually("every agent works", || agents.seen.claims.lock().len() == 4) => {}
        }
    }
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let hooks = agents.seen.hooks.lock().len();
    assert_eq!(hooks, 4, "their agents were told to abort");
    assert_eq!(job.manifest().steps[0].ledger.recycled["restart"], 2);
    pool.stop().await;
}

#[tokio::test]
async fn an_agent_that_always_fails_without_a_reward_ends_the_job_with_its_error() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"rollout": {"errorBudget": {"consecutiveGroupFailures": 3}}}),
    );
    let _agents = Agents::start(&pool, "sums", 2, |_, _| Behaviour::Fail);
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    assert!(
        result.message.contains("agent_failed: Traceback: boom"),
        "{}",
        result.message
    );
    pool.stop().await;
}

#[tokio::test]
async fn without_launchers_an_interruption_ends_the_waiting_sessions_at_once() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({}));
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let stop = CancellationToken::new();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        eventually("sessions wait", || {
            board.json()["progress"]["sessions"]["active"] == 4
        })
        .await;
        stop.cancel();
    });
    assert_eq!(result.unwrap().reason, Reason::Interrupted);
    let word = job.last_word();
    assert_eq!(word["teardown"]["stragglers"], 0, "{word}");
    pool.stop().await;
}

#[tokio::test]
async fn a_router_that_restarts_costs_every_session_a_refill() {
    let mut pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({}));
    let agents = Agents::start(&pool, "sums", 4, |n, _| {
        if n < 4 { Behaviour::Hang } else { reward(1.0) }
    });
    let driver = Driver::start(job.config()).await.unwrap();
    let (result, ()) = tokio::join!(driver.run(CancellationToken::new()), async {
        eventually("every agent works", || agents.seen.claims.lock().len() == 4).await;
        pool.restart_router().await;
    });
    let word = job.last_word();
    assert!(result.unwrap().success, "{word}");
    assert_eq!(word["progress"]["sessions"]["infraFailed"], 4, "{word}");
    assert_eq!(word["recentFailures"][0]["reason"], "router_restarted");
    pool.stop().await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_imported_ends_the_job_with_its_error() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"rollout": {"errorBudget": {"consecutiveGroupFailures": 5}}}),
    );
    let agents = Agents::start(&pool, "sums", 2, |_, _| Behaviour::NotLoaded);
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    assert!(
        result.message.contains("No module named 'openai'"),
        "{}",
        result.message
    );
    assert!(
        agents.seen.claims.lock().len() < 12,
        "it did not go on for long"
    );
    pool.stop().await;
}

#[tokio::test]
async fn an_agent_whose_own_code_is_broken_ends_the_job_with_the_third_try() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({}));
    let agents = Agents::start(&pool, "sums", 1, |_, _| Behaviour::Broken);
    let result = job.run().await.unwrap();
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    assert_eq!(
        result.message,
        "the agent cannot be loaded: ModuleNotFoundError: No module named 'openai'"
    );
    // The claims that followed the third were fenced, or overtook the fence. Of other failures it would take sixteen in a row.
    assert!(agents.seen.claims.lock().len() < 12);
    let word = job.last_word();
    let failure = &word["recentFailures"][0];
    assert_eq!(failure["reason"], "agent_not_loaded", "{word}");
    let traceback = failure["message"].as_str().unwrap();
    assert!(traceback.contains("line 1, in <module>"), "{word}");
    pool.stop().await;
}

#[tokio::test]
async fn where_other_agents_have_been_loaded_one_that_cannot_be_is_the_machinerys_failure() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(&pool, &json!({}));
    // Five in a row, with nothing finished in between.
    let agents = Agents::start(&pool, "sums", 1, |n, _| match n {
        1..=5 => Behaviour::Broken,
        _ => reward(1.0),
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let word = job.last_word();
    assert_eq!(word["progress"]["sessions"]["infraFailed"], 5, "{word}");
    drop(agents);
    pool.stop().await;
}

#[tokio::test]
async fn samples_whose_shared_processes_die_run_alone_in_the_end_and_cost_the_job_nothing() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let budget = json!({"infraFailures": 0, "retriesPerSample": 0, "consecutiveGroupFailures": 1});
    let job = job(&pool, &json!({"rollout": {"errorBudget": budget}}));
    let agents = Agents::start(&pool, "sums", 2, |_, _| Behaviour::DiesInCompany);
    let result = job.run().await.unwrap();
    let word = job.last_word();
    assert!(result.success, "{word}");
    let claims = agents.seen.claims.lock().clone();
    let (alone, shared): (Vec<_>, Vec<_>) = claims.iter().partition(|claim| claim["alone"] == true);
    assert_eq!((alone.len(), shared.len()), (4, 8), "{word}");
    assert_eq!(word["recentFailures"][0]["reason"], "shared_process_died");
    assert_eq!(job.samples(0).len(), 4);
    pool.stop().await;
}

#[tokio::test]
async fn an_agent_that_hears_nothing_is_given_up_after_the_drain() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({
            "rollout": {"batchSize": 1, "overSampling": {"batchSize": 2}},
            "teardown": {"drainSeconds": 1, "abortHookSeconds": 1},
        }),
    );
    let _agents = Agents::start(&pool, "sums", 4, |_, prompt| {
        if prompt == SUMS[0].0 {
            reward(1.0)
        } else {
            Behaviour::Deaf
        }
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let word = job.last_word();
    assert_eq!(word["teardown"]["hook"], "HookTimedOut", "{word}");
    let drained = word["teardown"]["drainMillis"].as_u64().unwrap();
    assert!(drained >= 1000, "it had its time: {word}");
    assert_eq!(job.manifest().steps[0].ledger.recycled["unneeded"], 1);
    pool.stop().await;
}

#[tokio::test]
async fn with_partial_rollout_a_finished_sample_of_an_unfinished_group_is_used_in_the_next_step() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"rollout": {
            "steps": 2, "batchSize": 1, "overSampling": {"batchSize": 2}, "partial": {"enabled": true},
        }}),
    );
    let unfinished = AtomicU32::new(0);
    let (go, held) = watch::channel(false);
    let agents = Agents::start(&pool, "sums", 4, move |_, prompt| {
        let second_group = prompt == SUMS[1].0;
        if second_group && unfinished.fetch_add(1, Ordering::Relaxed) == 1 {
            return Behaviour::Hang;
        }
        // The first group ends last, so that the second one has its finished sample by then.
        if second_group {
            reward(0.25)
        } else if prompt == SUMS[0].0 {
            Behaviour::Held(held.clone())
        } else {
            Behaviour::Hang
        }
    });
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let (result, ()) = tokio::join!(driver.run(CancellationToken::new()), async {
        eventually("the second group has a finished sample", || {
            board.json()["progress"]["sessions"]["completed"] == 1
        })
        .await;
        go.send_replace(true);
    });
    assert!(result.unwrap().success, "{}", job.last_word());
    let claims = agents.seen.claims.lock().clone();
    let of_second = claims
        .iter()
        .filter(|claim| claim["prompt"][0]["content"] == SUMS[1].0);
    assert_eq!(
        of_second.count(),
        3,
        "one finished, one hung and was run again"
    );
    let samples = job.samples(1);
    assert!(samples.iter().all(|sample| sample.reward == json!(0.25)));
    let old = samples
        .iter()
        .filter(|sample| sample.metadata.contains_key("start_rollout_id"));
    assert!(old.count() >= 1);
    pool.stop().await;
}

#[tokio::test]
async fn without_a_router_sessions_and_agents_are_not_waited_for() {
    let mut pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = job(
        &pool,
        &json!({"teardown": {"drainSeconds": 600, "abortHookSeconds": 600}}),
    );
    job.config["timeouts"]["router_seconds"] = json!(60.0);
    let agents = Agents::start(&pool, "sums", 4, |_, _| Behaviour::Hang);
    let driver = Driver::start(job.config()).await.unwrap();
    let stop = CancellationToken::new();
    let run = tokio::time::timeout(SOON, driver.run(stop.clone()));
    let (result, ()) = tokio::join!(run, async {
        eventually("every agent works", || agents.seen.claims.lock().len() == 4).await;
        pool.kill_router();
        stop.cancel();
    });
    let result = result.expect("it ends soon").unwrap();
    assert_eq!(result.reason, Reason::Interrupted);
    let word = job.last_word();
    assert_eq!(word["teardown"]["hook"], "HookFailed", "{word}");
    let troubles = word["teardown"]["troubles"].to_string();
    assert!(
        troubles.contains("Release: 4 of 4 sessions were not deleted: the router is gone"),
        "{word}"
    );
    pool.stop().await;
}

#[tokio::test]
async fn an_agent_at_its_tools_takes_no_engines_place() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job(
        &pool,
        &json!({"rollout": {"concurrency": {"requestsPerEngine": 1}}}),
    );
    // All four have had a turn before any has its second: with a permit per session, none but the first would get there.
    let barrier = Arc::new(Barrier::new(4));
    let _agents = Agents::start(&pool, "sums", 4, move |_, _| {
        Behaviour::Meet(Arc::clone(&barrier))
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    assert!(!job.samples(0).is_empty());
    pool.stop().await;
}

#[tokio::test]
async fn a_session_whose_last_turn_an_engine_failed_is_run_again_and_never_scored() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let fault = Fault::new("/v1/chat/completions", FaultKind::Status500).times(2);
    pool.simulators[0].add_fault(fault);
    let job = job(&pool, &json!({}));
    // An agent that takes the failed turn for its own failure, and gives itself no reward for it.
    let agents = Agents::start(&pool, "sums", 1, |n, _| {
        reward(if n < 2 { 0.0 } else { 1.0 })
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let word = job.last_word();
    assert_eq!(
        word["recentFailures"][0]["reason"], "engine_failed",
        "{word}"
    );
    assert_eq!(word["recentFailures"][0]["count"], 2, "{word}");
    assert!(job.samples(0).iter().all(|s| s.reward == json!(1.0)));
    assert_eq!(agents.seen.claims.lock().len(), 6);
    pool.stop().await;
}
