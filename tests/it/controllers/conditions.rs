//! Conditions over time, and what is told about them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use rollout_operator::api::conditions::{reasons, types};
use rollout_operator::controllers::runtime::events::{Note, notes};
use rollout_operator::plan::conditions::{Claim, merge};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ready(holds: bool, reason: &'static str, message: &str) -> Vec<Claim> {
    vec![Claim::new(types::READY, holds, reason, message)]
}

#[test]
fn the_time_is_that_of_the_last_turn() {
    let first = merge(&[], ready(false, reasons::STARTING, "a"), 1, at(10));
    let second = merge(&first, ready(false, reasons::SUSPENDED, "b"), 2, at(20));
    assert_eq!(second[0].last_transition_time.0, at(10));
    assert_eq!(
        (second[0].reason.as_str(), second[0].message.as_str()),
        ("Suspended", "b")
    );
    assert_eq!(second[0].observed_generation, Some(2));
    let third = merge(&second, ready(true, reasons::AS_EXPECTED, ""), 2, at(30));
    assert_eq!(third[0].last_transition_time.0, at(30));
    // What nobody claims is gone.
    assert_eq!(merge(&third, Vec::new(), 2, at(40)), []);
}

#[test]
fn times_and_messages_are_as_the_api_server_keeps_them() {
    let fine = Timestamp::from_millisecond(10_500).unwrap();
    let long = "ä".repeat(5000);
    let made = merge(&[], ready(true, reasons::AS_EXPECTED, &long), 1, fine);
    assert_eq!(made[0].last_transition_time.0, at(10));
    assert!(made[0].message.len() <= 4096);
    assert!(made[0].message.ends_with("ä..."));
    let stored: Condition =
        serde_json::from_value(serde_json::to_value(&made[0]).unwrap()).unwrap();
    assert_eq!(stored, made[0]);
}

fn told(before: Vec<Claim>, after: Vec<Claim>) -> Vec<(bool, String)> {
    let before = merge(&[], before, 1, at(1));
    let after = merge(&before, after, 1, at(2));
    notes(&before, &after)
        .into_iter()
        .map(
            |Note {
                 warning,
                 about,
                 reason,
                 ..
             }| (warning, format!("{about}/{reason}")),
        )
        .collect()
}

#[test]
fn events_tell_turns_and_new_reasons_and_nothing_twice() {
    let stalled = |holds: bool, reason, message: &str| {
        vec![Claim::new(types::STALLED, holds, reason, message)]
    };
    let quiet = stalled(false, reasons::AS_EXPECTED, "");
    assert_eq!(told(Vec::new(), quiet.clone()), []);
    let bad = stalled(true, reasons::INVALID_SPEC, "x");
    assert_eq!(
        told(quiet.clone(), bad.clone()),
        [(true, "Stalled/InvalidSpec".to_owned())]
    );
    // Other words for the same reason are no news.
    assert_eq!(
        told(bad.clone(), stalled(true, reasons::INVALID_SPEC, "y")),
        []
    );
    let other = stalled(true, reasons::QUOTA_EXCEEDED, "z");
    assert_eq!(
        told(bad.clone(), other),
        [(true, "Stalled/QuotaExceeded".to_owned())]
    );
    assert_eq!(told(bad, quiet), [(false, "Stalled/AsExpected".to_owned())]);

    let up = ready(true, reasons::AS_EXPECTED, "");
    assert_eq!(
        told(Vec::new(), up.clone()),
        [(false, "Ready/AsExpected".to_owned())]
    );
    let down = ready(false, reasons::STARTING, "");
    assert_eq!(
        told(up, down.clone()),
        [(true, "Ready/Starting".to_owned())]
    );
    assert_eq!(told(down, ready(false, reasons::SUSPENDED, "")), []);
    let moving = vec![Claim::new(
        types::RECONCILING,
        true,
        reasons::PROGRESSING,
        "",
    )];
    assert_eq!(told(Vec::new(), moving), []);
    let resting = vec![Claim::new(types::SUSPENDED, true, reasons::SUSPENDED, "")];
    assert_eq!(
        told(Vec::new(), resting),
        [(false, "Suspended/Suspended".to_owned())]
    );
}

#[test]
fn what_turns_together_for_one_reason_is_told_once() {
    let all = |holds: bool, reason: &'static str| {
        [types::READY, types::AVAILABLE, types::ENGINES_READY]
            .map(|about| Claim::new(about, holds, reason, format!("of {about}")))
            .to_vec()
    };
    let (down, up) = (
        all(false, reasons::STARTING),
        all(true, reasons::AS_EXPECTED),
    );
    assert_eq!(
        told(down.clone(), up.clone()),
        [(false, "Ready/AsExpected".to_owned())]
    );
    assert_eq!(told(up, down), [(true, "Ready/Starting".to_owned())]);
}

#[test]
fn what_a_job_has_from_the_start_is_told_when_it_was_missing() {
    let pool = |holds: bool, reason| vec![Claim::new(types::POOL_READY, holds, reason, "")];
    let there = pool(true, reasons::AS_EXPECTED);
    assert_eq!(told(Vec::new(), there.clone()), []);
    let missing = pool(false, reasons::REFERENCE_NOT_FOUND);
    assert_eq!(
        told(missing.clone(), there.clone()),
        [(false, "PoolReady/AsExpected".to_owned())]
    );
    assert_eq!(
        told(there, missing),
        [(true, "PoolReady/ReferenceNotFound".to_owned())]
    );
}

#[test]
fn a_hook_of_the_teardown_is_told() {
    let down = |holds: bool, reason| vec![Claim::new(types::TEARDOWN_COMPLETE, holds, reason, "")];
    let ending = down(false, reasons::PROGRESSING);
    for reason in [
        reasons::HOOK_SUCCEEDED,
        reasons::HOOK_FAILED,
        reasons::ESCALATED,
    ] {
        assert_eq!(
            told(ending.clone(), down(true, reason)),
            [(false, format!("TeardownComplete/{reason}"))]
        );
    }
}

#[test]
fn a_good_end_warns_of_nothing() {
    let sampling =
        |holds: bool, reason, message: &str| Claim::new(types::SAMPLING, holds, reason, message);
    let ready = |holds: bool, reason| Claim::new(types::READY, holds, reason, "");
    let running = vec![
        ready(false, reasons::PROGRESSING),
        sampling(true, reasons::AS_EXPECTED, "the driver generates samples"),
    ];
    let ended = vec![
        ready(true, reasons::TARGET_REACHED),
        sampling(false, reasons::AS_EXPECTED, "the driver is done"),
        Claim::new(types::TARGET_REACHED, true, reasons::TARGET_REACHED, ""),
        Claim::new(types::TEARDOWN_COMPLETE, true, reasons::NO_HOOK, ""),
        Claim::new(types::COMPLETE, true, reasons::TARGET_REACHED, ""),
    ];
    assert_eq!(
        told(running.clone(), ended),
        [(false, "Ready/TargetReached".to_owned())]
    );
    // A driver that is lost is another matter.
    let lost = vec![
        ready(false, reasons::STARTING),
        sampling(false, reasons::STARTING, "the driver starts"),
    ];
    assert_eq!(
        told(running, lost),
        [(true, "Sampling/Starting".to_owned())]
    );
}
