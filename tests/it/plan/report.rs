//! What drivers say, of this version and others.

use rollout_operator::api::job::{HookResult, RolloutJobStatus};
use rollout_operator::plan::job::{Doing, Facts, Report};
use serde_json::json;

#[test]
fn a_report_is_read_part_by_part() {
    let status = json!({
        "version": 1,
        "phase": "TearingDown",
        "demand": {"waiting": 1, "assigned": 2, "idle_claims": 0, "closed": true, "new": 1},
        "progress": "of another kind",
        "teardown": {"fencedSessions": 3, "hook": "NoHook", "unproven": 0},
        "recentFailures": [{"reason": "engine_failed", "message": "gone", "count": 2}],
        "result": null,
    });
    let report = Report::read(&status);
    assert_eq!(report.doing, Doing::TearingDown);
    assert!(report.demand.unwrap().closed);
    assert_eq!(report.facts.progress, None);
    let teardown = report.facts.teardown.unwrap();
    assert_eq!(
        (teardown.fenced_sessions, teardown.hook),
        (3, Some(HookResult::NoHook))
    );
    assert_eq!(report.facts.failures.len(), 1);
}

#[test]
fn what_a_later_driver_says_in_new_words_takes_nothing_else_with_it() {
    let status = json!({
        "version": 1,
        "phase": "Rehearsing",
        "demand": {"waiting": 1, "assigned": 2, "idle_claims": 0, "closed": false, "by_kind": {}},
        "progress": {
            "step": 3, "rewardMean": null, "tokens": null, "sessions": {"active": 2, "completed": "many"},
            "groups": {"target": 4, "kept": 2, "scored": 1}, "speed": {},
        },
        "teardown": {"fencedSessions": 3, "hook": "HookSkipped", "rungs": []},
        "recentFailures": [
            {"reason": "engine_failed", "message": "gone", "count": 2, "since": "turn 3"},
            {"reason": "engine_failed", "count": {"turns": 3}},
            {"reason": "new", "count": 1},
        ],
        "result": {"reason": "StoppedEarly", "message": "", "success": true, "certainty": 1},
    });
    let report = Report::read(&status);
    assert_eq!(report.doing, Doing::Generating);
    assert_eq!(report.demand.unwrap().assigned, 2);
    let progress = report.facts.progress.unwrap();
    assert_eq!((progress.step, progress.reward_mean), (3, None));
    assert_eq!((progress.groups.target, progress.groups.kept), (4, 2));
    let sessions = progress.sessions;
    assert_eq!((sessions.active, sessions.completed), (2, 0));
    let teardown = report.facts.teardown.unwrap();
    assert_eq!((teardown.fenced_sessions, teardown.hook), (3, None));
    let failures = report.facts.failures.iter();
    let failures: Vec<_> = failures.map(|failure| &*failure.reason).collect();
    assert_eq!(failures, ["engine_failed", "new"]);
    assert!(report.facts.outcome.unwrap().is_decided());
}

#[test]
fn half_a_demand_is_none() {
    // A Pod that is taken for one too many is deleted.
    let status = json!({"version": 1, "demand": {"waiting": null, "assigned": 1, "idle_claims": 0, "closed": false}});
    assert_eq!(Report::read(&status).demand, None);
}

#[test]
fn what_an_earlier_driver_does_not_say_is_nothing() {
    let report = Report::read(&json!({"phase": "Running", "attempt": 1}));
    assert_eq!(report, Report::default());
    let word = json!({"result": {"reason": "TargetReached", "success": true}});
    let facts = Facts::of_last_word(&word.to_string()).unwrap();
    assert!(facts.outcome.unwrap().is_decided());
    assert_eq!((facts.progress, facts.output), (None, None));
}

#[test]
fn a_status_that_a_later_version_wrote_can_be_read() {
    let status = json!({
        "observedGeneration": 3, "phase": "Rehearsing", "attempt": 2, "startTime": "2026-01-01T00:00:00Z",
        "teardown": {"fencedSessions": 3, "hook": "HookSkipped"}, "rehearsal": {"of": 1},
    });
    let status: RolloutJobStatus = serde_json::from_value(status).unwrap();
    assert_eq!((status.phase, status.attempt), (None, 2));
    assert_eq!(status.teardown.unwrap().hook, None);
}

#[test]
fn of_a_later_version_only_the_end_is_believed() {
    let word = json!({
        "version": 2,
        "result": {"reason": "TargetReached", "message": "", "success": true},
        "progress": {"step": 7},
    });
    let facts = Facts::of_last_word(&word.to_string()).unwrap();
    assert!(facts.outcome.unwrap().is_decided());
    assert_eq!(facts.progress, None);
}

#[test]
fn what_is_no_last_word_is_none() {
    for text in ["", "null", "killed", "[1]"] {
        assert_eq!(Facts::of_last_word(text), None, "{text}");
    }
}
