//! What drivers say, of this version and others.

use rollout_operator::api::job::HookResult;
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
