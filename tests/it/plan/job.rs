//! A job from its first look to its end.

use std::time::Duration;

use rollout_operator::api::conditions::reasons;
use rollout_operator::api::job::{Phase, Progress};
use rollout_operator::plan::job::{AgentLife, DriverLife, Due, PoolView, Report, due};
use rollout_operator::plan::pool::Trouble;
use serde_json::{Value, json};

use super::scene::{Scene, acts, agent, at, conditions, driver, trouble, word};

#[test]
fn the_number_of_an_attempt_is_written_before_its_pod_is_made() {
    let mut scene = Scene::new(&json!({}));
    let begins = scene.step();
    assert_eq!(acts(&begins), "hold, pool");
    assert_eq!(
        (begins.status.attempt, begins.status.phase),
        (1, Some(Phase::Starting))
    );
    assert!(begins.status.start_time.is_some());
    let makes = scene.step();
    assert_eq!(acts(&makes), "hold, pool, objects, driver");
    assert_eq!(makes.status.attempt, 1);
    // One write is enough for both looks.
    assert_eq!(due(&begins.status, &makes.status, None), Due::Never);
    scene.observed.drivers = vec![driver(1, DriverLife::Starting)];
    assert_eq!(acts(&scene.step()), "hold, pool, objects");
}

#[test]
fn nothing_begins_before_the_pool_takes_work() {
    for (pool, ready, stalled) in [
        (PoolView::Unready("starts".to_owned()), "Starting", false),
        (PoolView::Missing, "ReferenceNotFound", true),
        (PoolView::NotAllowed, "PoolNotAllowed", true),
        (PoolView::OutOfSight, "ReferenceNotFound", true),
    ] {
        let mut scene = Scene::new(&json!({}));
        scene.observed.pool = pool;
        let plan = scene.step();
        assert_eq!(plan.status.attempt, 0, "{ready}");
        assert_eq!(acts(&plan), "pool");
        let shown = conditions(&plan.status);
        assert!(shown.contains(&format!("Ready=False/{ready}")), "{shown:?}");
        assert_eq!(
            shown.contains(&format!("Stalled=True/{ready}")),
            stalled,
            "{shown:?}"
        );
    }
}

#[test]
fn a_spec_that_cannot_work_begins_nothing() {
    let mut scene = Scene::new(&json!({}));
    scene.refusal = Some(trouble());
    let plan = scene.step();
    assert_eq!(acts(&plan), "");
    assert!(conditions(&plan.status).contains(&"Stalled=True/QuotaExceeded".to_owned()));
}

#[test]
fn what_hinders_is_told_and_tried_again() {
    let mut scene = Scene::new(&json!({}));
    scene.step();
    scene.hindrance = Some(trouble());
    let plan = scene.step();
    assert_eq!(acts(&plan), "hold, pool, objects, driver");
    assert!(conditions(&plan.status).contains(&"Stalled=True/QuotaExceeded".to_owned()));
}

#[test]
fn a_decided_end_is_written_before_the_last_word_is_let_go() {
    let mut scene = Scene::running(&json!({}));
    assert_eq!(scene.before.phase, Some(Phase::Running));
    scene.ends(Some(&word("TargetReached", true)));
    let plan = scene.step();
    assert_eq!(acts(&plan), "hold, release job-driver-1");
    assert_eq!(plan.status.phase, Some(Phase::Succeeded));
    assert!(plan.status.completion_time.is_some());
    insta::assert_snapshot!(conditions(&plan.status).join("\n"), @r"
    Ready=True/TargetReached
    PoolReady=True/AsExpected
    TargetReached=True/TargetReached
    TeardownComplete=True/NoHook
    Complete=True/TargetReached
    ");
    scene.observed.drivers[0].is_held = false;
    assert_eq!(acts(&scene.step()), "clear");
    scene.held = false;
    let settled = scene.step();
    assert_eq!((acts(&settled).as_str(), settled.again), ("", None));
    assert_eq!(settled.status, plan.status);
}

#[test]
fn an_end_waits_for_the_last_agent() {
    let mut scene = Scene::running(&json!({"generate": agentic()}));
    scene.observed.agents = vec![agent(0, 1, AgentLife::Running)];
    scene.ends(Some(&word("TargetReached", true)));
    let plan = scene.step();
    assert_eq!(acts(&plan), "hold, delete job-agent-0-1");
    assert!(plan.agents.all_go);
    assert_eq!(plan.status.phase, Some(Phase::TearingDown));
    assert!(conditions(&plan.status).contains(&"TeardownComplete=False/Progressing".to_owned()));
    scene.observed.agents[0].leaving = Some(at(70));
    scene.now = 131;
    let plan = scene.step();
    assert_eq!(plan.status.phase, Some(Phase::Succeeded));
    let shown = conditions(&plan.status);
    assert!(
        shown.contains(&"TeardownComplete=True/Escalated".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn agents_pods_that_are_deleted_at_the_end_are_counted_once() {
    let mut scene = Scene::running(&json!({"generate": agentic()}));
    scene.observed.agents = (0..3)
        .map(|slot| agent(slot, 1, AgentLife::Running))
        .collect();
    let mut last = word("TargetReached", true);
    last["teardown"] = json!({"fencedSessions": 2, "podsDeleted": 0});
    scene.ends(Some(&last));
    // A cache that is behind shows them again.
    scene.step();
    scene.step();
    scene.observed.agents.truncate(1);
    scene.step();
    scene.observed.agents.clear();
    let teardown = scene.step().status.teardown.unwrap();
    assert_eq!((teardown.pods_deleted, teardown.fenced_sessions), (3, 2));
}

#[test]
fn the_ladders_numbers_are_those_of_one_attempt() {
    let mut scene = Scene::running(&json!({"generate": agentic()}));
    scene.spec.suspend = true;
    scene.observed.agents = vec![agent(0, 1, AgentLife::Running)];
    scene.ends(Some(&word("interrupted", false)));
    scene.step();
    scene.observed.agents.clear();
    scene.observed.drivers.clear();
    assert_eq!(scene.step().status.teardown.unwrap().pods_deleted, 1);
    scene.spec.suspend = false;
    assert_eq!(scene.step().status.teardown, None);
}

#[test]
fn what_a_spec_names_is_looked_up_until_an_attempt_begins() {
    let mut scene = Scene::new(&json!({}));
    scene.observed.pool = PoolView::Unready("starts".to_owned());
    assert!(scene.step().looks_up);
    scene.observed.pool = PoolView::Ready(1);
    assert!(scene.step().looks_up);
    assert!(!scene.step().looks_up);
    let mut scene = Scene::new(&json!({}));
    scene.refusal = Some(trouble());
    assert!(!scene.step().looks_up);
}

#[test]
fn what_is_missing_is_looked_for_ever_later_and_what_is_wrong_is_not() {
    let mut scene = Scene::new(&json!({}));
    scene.refusal = Some(trouble());
    for (now, again) in [(0, 1), (9, 1), (100, 10), (10_000, 30)] {
        scene.now = now;
        assert_eq!(
            scene.step().again,
            Some(Duration::from_secs(again)),
            "{now}"
        );
    }
    scene.refusal = Some(Trouble {
        reason: reasons::INVALID_SPEC,
        message: String::new(),
    });
    assert_eq!(scene.step().again, None);
}

#[test]
fn a_failed_end_fails() {
    let mut scene = Scene::running(&json!({}));
    scene.ends(Some(&word("DatasetExhausted", false)));
    let plan = scene.step();
    assert_eq!(plan.status.phase, Some(Phase::Failed));
    assert!(conditions(&plan.status).contains(&"Failed=True/DatasetExhausted".to_owned()));
}

#[test]
fn an_end_without_a_decision_is_tried_again_and_not_for_ever() {
    for end in [
        None,
        Some(word("interrupted", false)),
        Some(word("crashed", false)),
    ] {
        let mut scene = Scene::running(&json!({"backoffLimit": 1}));
        scene.ends(end.as_ref());
        let rests = scene.step();
        assert_eq!(
            (rests.status.attempt, acts(&rests).as_str()),
            (1, "hold, pool")
        );
        scene.now = 10;
        let begins = scene.step();
        assert_eq!(
            (begins.status.attempt, acts(&begins).as_str()),
            (2, "hold, pool")
        );
        let next = scene.step();
        assert_eq!(
            acts(&next),
            "hold, pool, objects, driver, stop job-driver-1, release job-driver-1"
        );
        scene.observed.drivers = vec![driver(2, DriverLife::Running)];
        scene.ends(end.as_ref());
        let plan = scene.step();
        let shown = conditions(&plan.status);
        assert!(
            shown.contains(&"Failed=True/BackoffLimitExceeded".to_owned()),
            "{shown:?}"
        );
    }
}

#[test]
fn a_driver_that_vanished_is_made_anew_under_another_number_once_it_was_heard() {
    let mut scene = Scene::running(&json!({}));
    scene.observed.drivers.clear();
    scene.observed.report = None;
    assert_eq!(scene.step().status.attempt, 1);
    scene.now = 10;
    assert_eq!(scene.step().status.attempt, 2);
    let mut scene = Scene::new(&json!({}));
    scene.step();
    assert_eq!(scene.step().status.attempt, 1);
}

#[test]
fn a_driver_that_is_taken_away_does_not_count() {
    for (leaving, is_disrupted) in [(Some(at(5)), false), (None, true)] {
        let mut scene = Scene::running(&json!({"backoffLimit": 0}));
        scene.observed.drivers[0].leaving = leaving;
        scene.observed.drivers[0].is_disrupted = is_disrupted;
        scene.ends(Some(&word("interrupted", false)));
        assert_eq!(scene.step().status.phase, Some(Phase::Starting));
        scene.now = 10;
        let begins = scene.step();
        assert_eq!(begins.status.attempt, 2);
        let failure = &begins.status.recent_failures[0];
        assert_eq!(
            (failure.reason.as_str(), failure.count),
            ("driver_disrupted", 1)
        );
    }
}

/// The end of a namespace takes engines and drivers first: a driver that is held would hold it for ever.
#[test]
fn a_driver_that_is_taken_away_is_let_go_while_the_job_waits() {
    for pool in [PoolView::Unready("starts".to_owned()), PoolView::Ready(1)] {
        let mut scene = Scene::running(&json!({}));
        scene.observed.pool = pool.clone();
        scene.observed.drivers[0].leaving = Some(at(5));
        scene.ends(Some(&word("interrupted", false)));
        let acts = acts(&scene.step());
        assert!(acts.ends_with("pool, release job-driver-1"), "{acts}");
        scene.observed.drivers.clear();
        // It is gone, and its attempt stays over.
        scene.now = 9;
        assert_eq!(scene.step().status.attempt, 1);
        scene.now = 20;
        scene.observed.pool = PoolView::Ready(1);
        assert_eq!(scene.step().status.attempt, 2, "{pool:?}");
    }
}

#[test]
fn starts_in_place_count_and_the_crash_is_told() {
    let mut scene = Scene::running(&json!({"backoffLimit": 2}));
    scene.observed.drivers[0].restarts = 2;
    scene.observed.drivers[0].crash = Some("no space".to_owned());
    let plan = scene.step();
    assert_eq!(acts(&plan), "hold, pool, objects");
    let failure = &plan.status.recent_failures[0];
    assert_eq!(
        (failure.reason.as_str(), failure.count),
        ("driver_crashed", 2)
    );
    scene.observed.drivers[0].restarts = 3;
    assert_eq!(acts(&scene.step()), "hold, stop job-driver-1");
    scene.observed.drivers[0].leaving = Some(at(60));
    scene.ends(Some(&word("interrupted", false)));
    let status = scene.step().status;
    let failed = status
        .conditions
        .iter()
        .find(|one| one.type_ == "Failed")
        .unwrap();
    assert_eq!(failed.reason, "BackoffLimitExceeded");
    assert!(failed.message.ends_with("no space"), "{}", failed.message);
}

#[test]
fn a_suspended_job_ends_its_driver_and_goes_on_with_the_next_number() {
    let mut scene = Scene::running(&json!({}));
    scene.spec.suspend = true;
    assert_eq!(acts(&scene.step()), "hold, stop job-driver-1");
    scene.observed.drivers[0].leaving = Some(at(60));
    scene.ends(Some(&word("interrupted", false)));
    let plan = scene.step();
    assert_eq!(plan.status.phase, Some(Phase::Suspended));
    assert!(conditions(&plan.status).contains(&"Suspended=True/Suspended".to_owned()));
    assert_eq!(acts(&plan), "hold, release job-driver-1");
    scene.observed.drivers.clear();
    scene.spec.suspend = false;
    scene.observed.pool = PoolView::Unready("starts".to_owned());
    assert_eq!(scene.step().status.attempt, 1);
    scene.observed.pool = PoolView::Ready(1);
    let plan = scene.step();
    assert_eq!(plan.status.attempt, 2);
    assert!(plan.status.recent_failures.is_empty());
    assert!(
        !conditions(&plan.status)
            .iter()
            .any(|shown| shown.starts_with("Suspended"))
    );
}

#[test]
fn a_job_that_decided_is_not_suspended() {
    let mut scene = Scene::running(&json!({}));
    scene.spec.suspend = true;
    scene.ends(Some(&word("TargetReached", true)));
    assert_eq!(scene.step().status.phase, Some(Phase::Succeeded));
}

#[test]
fn a_deleted_job_climbs_its_ladder_and_leaves_nothing() {
    let mut scene = Scene::running(&json!({}));
    scene.deleted = true;
    assert_eq!(acts(&scene.step()), "stop job-driver-1");
    scene.observed.drivers[0].leaving = Some(at(60));
    scene.ends(None);
    assert_eq!(acts(&scene.step()), "clear, release job-driver-1");
}

#[test]
fn a_node_that_does_not_answer_holds_nobody_up() {
    let mut scene = Scene::running(&json!({}));
    scene.deleted = true;
    scene.observed.drivers[0].leaving = Some(at(100));
    scene.now = 160;
    assert_eq!(acts(&scene.step()), "");
    scene.now = 161;
    assert_eq!(acts(&scene.step()), "clear, release job-driver-1");
}

#[test]
fn deadlines_end_a_job_that_the_driver_does_not_end() {
    for (field, reason) in [
        ("activeDeadlineSeconds", "DeadlineExceeded"),
        ("preRunningDeadlineSeconds", "PreRunningDeadlineExceeded"),
    ] {
        let mut scene = Scene::running(&json!({field: 100}));
        scene.now = 129;
        assert_eq!(acts(&scene.step()), "hold, pool, objects", "{field}");
        scene.now = 130;
        assert_eq!(acts(&scene.step()), "hold, stop job-driver-1", "{field}");
        scene.observed.drivers[0].leaving = Some(at(200));
        scene.ends(Some(&word("interrupted", false)));
        let shown = conditions(&scene.step().status);
        assert!(
            shown.contains(&format!("Failed=True/{reason}")),
            "{shown:?}"
        );
    }
}

#[test]
fn a_job_whose_pool_never_starts_ends_at_its_deadline() {
    let mut scene = Scene::new(&json!({"preRunningDeadlineSeconds": 100}));
    scene.observed.pool = PoolView::Unready("starts".to_owned());
    scene.step();
    scene.now = 100;
    let shown = conditions(&scene.step().status);
    assert!(
        shown.contains(&"Failed=True/PreRunningDeadlineExceeded".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn a_job_without_its_pool_fails() {
    let mut scene = Scene::running(&json!({}));
    scene.observed.pool = PoolView::Missing;
    assert_eq!(acts(&scene.step()), "hold, stop job-driver-1");
    scene.ends(Some(&word("interrupted", false)));
    let shown = conditions(&scene.step().status);
    assert!(
        shown.contains(&"Failed=True/PoolLost".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn another_rerun_id_runs_a_finished_job_again() {
    let mut scene = Scene::running(&json!({}));
    scene.ends(Some(&word("DatasetExhausted", false)));
    scene.step();
    scene.observed.drivers[0].is_held = false;
    scene.spec.rerun_id = "two".to_owned();
    let plan = scene.step();
    assert_eq!(
        (plan.status.attempt, plan.status.phase),
        (2, Some(Phase::Starting))
    );
    assert_eq!(plan.status.rerun_id.as_deref(), Some("two"));
    assert_eq!(plan.status.completion_time, None);
    assert_eq!(
        acts(&scene.step()),
        "hold, pool, objects, driver, stop job-driver-1"
    );
}

#[test]
fn what_is_left_goes_after_its_time() {
    for (cleanup, done) in [
        ("Children", "stop job-driver-1"),
        ("Self", "delete"),
        ("None", ""),
    ] {
        let mut scene = Scene::running(&json!({"cleanup": cleanup, "ttlSecondsAfterFinished": 60}));
        scene.ends(Some(&word("TargetReached", true)));
        scene.step();
        scene.observed.drivers[0].is_held = false;
        scene.held = false;
        scene.now = 59;
        assert_eq!(acts(&scene.step()), "", "{cleanup}");
        scene.now = 60;
        assert_eq!(acts(&scene.step()), done, "{cleanup}");
    }
}

#[test]
fn the_jobs_own_pool_is_made_while_it_is_waited_for() {
    let mut scene = Scene::new(&json!({"pool": {"engine": {"simulator": {}}}}));
    scene.spec.pool_ref = None;
    scene.observed.pool = PoolView::Missing;
    let plan = scene.step();
    assert_eq!(acts(&plan), "hold, pool");
    assert_eq!(plan.status.phase, Some(Phase::Pending));
}

pub(super) fn agentic() -> serde_json::Value {
    json!({"agentic": {"agent": {"container": {"template": {"spec": {"containers": [{"name": "agent"}]}}}}}})
}

#[test]
fn a_status_says_where_the_samples_are_for_whoever_is_not_in_the_drivers_pod() {
    let claim = |more: Value| {
        let mut claim = more;
        claim["claimName"] = json!("samples");
        json!({"output": {"persistentVolumeClaim": claim}})
    };
    for (mut spec, rerun, expected) in [
        (claim(json!({})), "", "pvc://samples"),
        (
            claim(json!({"path": "runs/one/"})),
            "",
            "pvc://samples/runs/one",
        ),
        (
            claim(json!({"path": "runs"})),
            "two",
            "pvc://samples/runs/two",
        ),
        (
            json!({"output": {"url": "file:///data/"}}),
            "two",
            "file:///data/two",
        ),
    ] {
        spec["rerunId"] = json!(rerun);
        let mut scene = Scene::running(&spec);
        let mut said = word("TargetReached", true);
        said["output"] = json!({"url": "/var/run/rollout/output/x", "samples": 4, "files": 1});
        scene.ends(Some(&said));
        let output = scene.plan().status.output.unwrap();
        assert_eq!(output.url.as_deref(), Some(expected));
        assert_eq!(output.samples, 4);
    }
}

#[test]
fn the_settings_of_an_attempt_stay_as_the_version_that_began_it_wrote_them() {
    let mut scene = Scene::running(&json!({}));
    assert!(scene.plan().settings);
    for version in [Some("1.2.2".to_owned()), Some("1.3.0".to_owned()), None] {
        scene.observed.drivers[0].version = version;
        let plan = scene.plan();
        assert_eq!(acts(&plan), "hold, pool, objects");
        assert!(!plan.settings);
    }
    // The next attempt is this version's.
    scene.observed.drivers[0].is_disrupted = true;
    scene.ends(None);
    scene.now = 60;
    scene.step();
    assert_eq!(scene.before.attempt, 2);
    assert!(scene.plan().settings);
}

#[test]
fn a_driver_that_has_just_started_again_takes_no_progress_back() {
    let mut scene = Scene::running(&json!({}));
    let mut report = Report::default();
    let mut progress = Progress::default();
    (progress.groups.target, progress.groups.kept) = (12, 7);
    report.facts.progress = Some(progress.clone());
    scene.observed.report = Some(report);
    scene.step();
    let mut report = Report::default();
    report.facts.progress = Some(Progress::default());
    scene.observed.report = Some(report);
    let status = scene.step().status;
    assert_eq!(status.progress, Some(progress));
    assert_eq!(status.display.unwrap().groups.unwrap(), "7/12");
}
