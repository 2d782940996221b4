//! Ends that no other start could do better than, and the end of a job that cannot be read.

use std::time::Duration;

use rollout_driver::unusable::Unusable;
use rollout_operator::api::conditions::reasons;
use rollout_operator::api::job::Phase;
use rollout_operator::plan::job::{Plan, Remnant, Role, end_unread};
use serde_json::json;

use super::scene::{Scene, acts, at, conditions, word};

const UNUSABLE: [Unusable; 5] = [
    Unusable::Spec,
    Unusable::Dataset,
    Unusable::Output,
    Unusable::Ledger,
    Unusable::Tokenizer,
];

#[test]
fn what_no_start_could_mend_fails_at_once_under_its_reason() {
    for reason in UNUSABLE.map(Unusable::reason) {
        assert!(reasons::ALL.contains(&reason), "{reason}");
        let mut scene = Scene::running(&json!({"backoffLimit": 3}));
        scene.ends(Some(&word(reason, false)));
        let plan = scene.step();
        assert_eq!(acts(&plan), "hold, release job-driver-1");
        let status = plan.status;
        assert_eq!((status.phase, status.attempt), (Some(Phase::Failed), 1));
        let shown = conditions(&status);
        assert!(
            shown.contains(&format!("Failed=True/{reason}")),
            "{shown:?}"
        );
        let failed = status.conditions.iter().find(|one| one.type_ == "Failed");
        assert_eq!(failed.unwrap().message, "as told");
    }
}

fn pod(name: &str) -> Remnant {
    Remnant {
        name: name.to_owned(),
        uid: name.to_owned(),
        role: if name.starts_with("driver") {
            Role::Driver
        } else {
            Role::Other
        },
        leaving: None,
        has_ended: false,
        is_held: name.starts_with("driver"),
    }
}

fn told(plan: &Plan) -> (String, Option<u64>) {
    (acts(plan), plan.again.map(|again| again.as_secs()))
}

#[test]
fn a_job_that_cannot_be_read_ends_from_its_pods_metadata() {
    let mut pods = [pod("driver-1"), pod("agent-0-1"), pod("agent-1-1")];
    // The driver first: it still needs the others.
    assert_eq!(
        told(&end_unread(&pods, at(0))),
        ("stop driver-1".to_owned(), None)
    );
    pods[0].leaving = Some(at(90));
    assert_eq!(
        told(&end_unread(&pods, at(30))),
        (String::new(), Some(60 + 61))
    );
    pods[0].has_ended = true;
    assert_eq!(
        told(&end_unread(&pods, at(31))),
        ("stop agent-0-1, stop agent-1-1".to_owned(), None)
    );
    pods[1].leaving = Some(at(40));
    pods[2].leaving = Some(at(50));
    assert_eq!(
        told(&end_unread(&pods, at(32))),
        (String::new(), Some(18 + 61))
    );
    assert_eq!(
        told(&end_unread(&pods[..1], at(33))),
        ("clear, release driver-1".to_owned(), None)
    );
    assert_eq!(told(&end_unread(&[], at(34))), ("clear".to_owned(), None));
}

/// Its node does not answer, and nobody will say that it ended.
#[test]
fn a_job_that_cannot_be_read_waits_for_no_lost_pod() {
    let mut pods = [pod("driver-1"), pod("agent-0-1")];
    for pod in &mut pods {
        pod.leaving = Some(at(0));
    }
    assert_eq!(
        end_unread(&pods, at(60)).again,
        Some(Duration::from_secs(61))
    );
    assert_eq!(
        told(&end_unread(&pods, at(61))),
        ("clear, release driver-1".to_owned(), None)
    );
}

#[test]
fn what_has_ended_is_deleted_before_a_job_that_cannot_be_read_goes() {
    let mut driver = pod("driver-1");
    driver.has_ended = true;
    assert_eq!(
        told(&end_unread(&[driver], at(0))),
        ("clear, stop driver-1, release driver-1".to_owned(), None)
    );
}
