//! Agents' Pods by slot and generation, from the driver's demand.

use std::time::Duration;

use rollout_operator::plan::job::{
    AgentLife, AgentPod, AgentsRefusal, Demand, EndCause, Plan, PodEnd, Report, Surplus,
};
use serde_json::json;

use super::job::agentic;
use super::scene::{Scene, acts, agent, at, conditions, trouble};

fn scene(waiting: u64, assigned: u64) -> Scene {
    let mut generate = agentic();
    generate["agentic"]["warmPods"] = json!(1);
    let mut scene = Scene::running(&json!({
        "generate": generate,
        "rollout": {"batchSize": 2, "concurrency": {"sessions": 3}},
    }));
    scene.observed.report = Some(Report {
        demand: Some(Demand {
            waiting,
            assigned,
            ..Demand::default()
        }),
        ..Report::default()
    });
    scene
}

fn ended(failed: bool) -> AgentLife {
    AgentLife::Ended {
        failed,
        at: Some(at(0)),
        reason: "as told".to_owned(),
    }
}

fn agents(plan: &Plan) -> String {
    acts(plan)
        .replace("hold, pool, objects", "")
        .trim_start_matches(", ")
        .to_owned()
}

#[test]
fn as_many_as_sessions_need_within_what_may_run_at_once() {
    for (waiting, assigned, expected) in [
        (2, 0, "create 0-1, create 1-1"),
        (1, 2, "create 0-1, create 1-1, create 2-1"),
        (9, 9, "create 0-1, create 1-1, create 2-1"),
        (0, 0, "create 0-1"),
    ] {
        assert_eq!(agents(&scene(waiting, assigned).plan()), expected);
    }
}

#[test]
fn an_unknown_demand_leaves_pods_as_they_are() {
    let mut scene = scene(3, 0);
    scene.observed.agents = vec![agent(0, 1, AgentLife::Running)];
    scene.observed.report = Some(Report::default());
    assert_eq!(agents(&scene.plan()), "");
    scene.observed.report = None;
    assert_eq!(agents(&scene.plan()), "");
}

#[test]
fn a_slot_that_ended_is_told_and_taken_by_the_next_generation() {
    let mut scene = scene(1, 1);
    scene.observed.agents = vec![agent(0, 1, ended(false)), agent(1, 1, AgentLife::Running)];
    assert_eq!(agents(&scene.plan()), "create 0-2, tell 0-1");
    // Until its successor is there it stays: its name says which generation is next.
    scene.observed.memory.told.insert((0, 1));
    assert_eq!(agents(&scene.plan()), "create 0-2");
    scene.observed.agents.push(agent(0, 2, AgentLife::Starting));
    assert_eq!(agents(&scene.plan()), "delete job-agent-0-1");
}

#[test]
fn a_pod_that_is_not_seen_yet_is_asked_for_by_the_same_name() {
    let scene = scene(1, 0);
    assert_eq!(agents(&scene.plan()), agents(&scene.plan()));
    assert_eq!(agents(&scene.plan()), "create 0-1");
}

#[test]
fn a_pod_that_was_deleted_is_told_and_its_name_is_not_used_again() {
    let mut scene = scene(1, 0);
    scene.observed.memory.highest.insert(0, 3);
    assert_eq!(agents(&scene.plan()), "create 0-4, tell 0-3");
}

#[test]
fn a_slot_whose_pod_failed_rests() {
    let mut scene = scene(0, 1);
    scene.observed.agents = vec![agent(0, 1, ended(true))];
    // Another slot takes the work meanwhile.
    assert_eq!(agents(&scene.plan()), "create 1-1, tell 0-1");
    scene.now = 10;
    assert_eq!(agents(&scene.plan()), "create 0-2, tell 0-1");
}

#[test]
fn agents_of_an_earlier_attempt_go() {
    let mut scene = scene(1, 0);
    let mut old = agent(0, 4, AgentLife::Running);
    old.attempt = 0;
    scene.observed.agents = vec![old];
    assert_eq!(agents(&scene.plan()), "create 0-5, delete job-agent-0-4");
}

fn refused(times: u32) -> AgentsRefusal {
    AgentsRefusal {
        trouble: trouble(),
        at: at(0),
        times,
    }
}

#[test]
fn pods_that_are_refused_are_asked_for_ever_later() {
    for (times, rest) in [(1, 1), (2, 2), (5, 16), (6, 30), (1000, 30)] {
        let mut scene = scene(2, 0);
        scene.observed.memory.refusal = Some(refused(times));
        scene.now = rest - 1;
        let rests = scene.plan();
        assert_eq!(agents(&rests), "", "{times}");
        assert!(rests.agents.is_refused);
        assert_eq!(rests.again, Some(Duration::from_secs(1)), "{times}");
        scene.now = rest;
        assert_eq!(agents(&scene.plan()), "create 0-1, create 1-1", "{times}");
    }
}

#[test]
fn a_refusal_that_nobody_waits_for_is_forgotten() {
    let mut scene = scene(1, 0);
    scene.observed.memory.refusal = Some(refused(1));
    scene.observed.agents = vec![agent(0, 1, AgentLife::Running)];
    let plan = scene.plan();
    assert_eq!(
        (agents(&plan).as_str(), plan.agents.is_refused),
        ("", false)
    );
}

#[test]
fn a_refusal_stalls_a_job_only_while_no_agent_runs() {
    let mut scene = scene(2, 0);
    scene.observed.memory.refusal = Some(refused(1));
    let shown = conditions(&scene.plan().status);
    for told in [
        "Stalled=True/QuotaExceeded",
        "AgentsReady=False/QuotaExceeded",
    ] {
        assert!(shown.contains(&told.to_owned()), "{shown:?}");
    }
    scene.observed.agents = vec![agent(0, 1, AgentLife::Running)];
    let shown = conditions(&scene.plan().status);
    assert!(
        !shown.iter().any(|told| told.starts_with("Stalled=True")),
        "{shown:?}"
    );
    assert!(
        shown.contains(&"AgentsReady=False/QuotaExceeded".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn pods_that_nobody_needs_any_more_may_go_after_a_while_if_they_are_idle() {
    let mut scene = scene(0, 1);
    scene.observed.agents = (0..3)
        .map(|slot| agent(slot, 1, AgentLife::Running))
        .collect();
    let first = scene.plan();
    assert_eq!(first.agents.surplus, Some(too_many(2)));
    assert!(first.agents.retire.0.is_empty());
    assert_eq!(first.again, Some(Duration::from_secs(20)));
    scene.observed.memory.surplus = Some(too_many(2));
    scene.now = 20;
    // Who is busy is the router's to say.
    let asks = scene.plan();
    assert_eq!(asks.agents.retire, (vec![(2, 1), (1, 1), (0, 1)], 2));
    assert_eq!(agents(&asks), "");
    scene.observed.memory.retired = [(2, 1)].into();
    let goes = scene.plan();
    assert_eq!(agents(&goes), "delete job-agent-2-1");
    assert!(!goes.agents.all_go);
    assert_eq!(goes.agents.retire, (vec![(1, 1), (0, 1)], 1));
    // Warm Pods stay.
    scene.observed.agents.truncate(1);
    assert_eq!(scene.plan().agents.surplus, None);
}

fn too_many(fewest: usize) -> Surplus {
    Surplus {
        since: at(0),
        fewest,
    }
}

#[test]
fn pods_that_are_needed_at_one_moment_of_a_while_stay() {
    let mut scene = scene(0, 1);
    scene.observed.agents = (0..3)
        .map(|slot| agent(slot, 1, AgentLife::Running))
        .collect();
    // Too many by two; by one at the next look; by two again when the while is over.
    scene.observed.memory.surplus = Some(too_many(1));
    scene.now = 10;
    assert_eq!(scene.plan().agents.surplus, Some(too_many(1)));
    scene.now = 20;
    let plan = scene.plan();
    assert_eq!(plan.agents.retire.1, 1);
    // The next one has to be too many for as long again.
    assert_eq!(plan.agents.surplus, None);
    assert_eq!(plan.again, Some(Duration::from_secs(20)));
}

fn at_fault(cause: EndCause) -> AgentPod {
    let mut pod = agent(0, 1, AgentLife::Running);
    pod.fault = Some(PodEnd {
        cause,
        reason: "as told".to_owned(),
    });
    pod
}

#[test]
fn a_pod_that_is_at_fault_is_told_while_it_runs_and_makes_room_for_the_next() {
    for cause in [EndCause::OutOfMemory, EndCause::SandboxFailed] {
        let mut scene = scene(0, 1);
        scene.observed.agents = vec![at_fault(cause)];
        let plan = scene.plan();
        // Its session runs again in another slot.
        assert_eq!(agents(&plan), "create 1-1, tell 0-1");
        assert_eq!(plan.agents.tell[&(0, 1)].cause, cause);
        scene.observed.memory.told.insert((0, 1));
        scene.observed.agents.push(agent(1, 1, AgentLife::Running));
        assert_eq!(agents(&scene.plan()), "delete job-agent-0-1");
    }
}
