//! When rewards are asked for, and what becomes of them.

use rollout_engine::{
    Command, EngineConfig, Event, Reason, SampleEnd, ScoreEnd, Scoring, TakeEnd, TakeId, Verdict,
};

use crate::rig::Rig;

fn drop_group(reason: &str) -> Verdict {
    Verdict::Drop {
        reason: reason.into(),
    }
}

#[test]
fn a_policy_failure_is_a_result_and_is_scored() {
    let mut rig = Rig::start(EngineConfig::new(1, 2, 10));
    rig.load_all();
    for key in rig.generating() {
        // The agent exits non-zero: what it had is scored, its cause is in the metadata.
        rig.finish_sample(key);
    }
    assert!(
        rig.pending
            .iter()
            .any(|c| matches!(c, Command::Score { .. }))
    );
    assert_eq!(rig.engine.progress().infra_failures, 0);
}

#[test]
fn a_sample_with_nothing_to_score_skips_the_reward_model() {
    let mut rig = Rig::start(EngineConfig::new(1, 1, 10));
    rig.load_all();
    let key = rig.generating()[0];
    rig.end_sample(
        key,
        SampleEnd::Finished {
            scorable: false,
            tokens: 0,
        },
    );
    rig.filter(TakeId(0), drop_group("group_has_aborted"));
    assert_eq!(
        rig.end_of(0),
        Some(&TakeEnd::Filtered("group_has_aborted".into()))
    );
}

#[test]
fn reward_tasks_of_unneeded_groups_are_cancelled_at_teardown() {
    let mut config = EngineConfig::new(1, 1, 10);
    config.fetch = 2;
    let mut rig = Rig::start(config);
    rig.load_all();
    let slow = rig.generating()[1];
    rig.finish_sample(slow);
    assert!(
        rig.take_command(|c| matches!(c, Command::Score { .. }))
            .is_some()
    );
    rig.keep_group(TakeId(0));
    assert!(
        rig.pending
            .contains(&Command::CancelScoring { take: TakeId(1) })
    );
    assert_eq!(rig.end_of(1), Some(&TakeEnd::Recycled("unneeded".into())));
}

#[test]
fn a_group_reward_is_asked_for_once_when_all_samples_are_there() {
    let mut config = EngineConfig::new(1, 2, 10);
    config.scoring = Scoring::Group;
    let mut rig = Rig::start(config);
    rig.load_all();
    let keys = rig.generating();
    rig.finish_sample(keys[0]);
    assert!(
        !rig.pending
            .iter()
            .any(|c| matches!(c, Command::ScoreGroup { .. }))
    );
    rig.finish_sample(keys[1]);
    assert!(
        rig.take_command(|c| matches!(c, Command::ScoreGroup { .. }))
            .is_some()
    );
    rig.send(Event::GroupScored {
        take: TakeId(0),
        end: ScoreEnd::Scored,
    });
    rig.filter(TakeId(0), Verdict::Keep);
    assert_eq!(rig.end_of(0), Some(&TakeEnd::Kept));
}

/// The next sample of the oldest group in work is scored with this.
fn first_score(rig: &mut Rig, end: ScoreEnd) {
    rig.load_all();
    let key = rig
        .generating()
        .into_iter()
        .find(|key| rig.end_of(key.take.0).is_none())
        .expect("a sample of a group in work");
    rig.finish_sample(key);
    let (take, slot) = (key.take, key.slot);
    let asked = rig.take_command(|c| *c == Command::Score { take, slot });
    assert!(asked.is_some(), "no reward was asked for");
    rig.send(Event::SampleScored { take, slot, end });
}

fn unusable() -> ScoreEnd {
    ScoreEnd::Unusable {
        problem: "rewards.score: ImportError: no module named numpy".into(),
    }
}

#[test]
fn a_reward_function_that_cannot_be_called_ends_the_job_soon_and_without_retries() {
    let mut rig = Rig::start(EngineConfig::new(8, 4, 100));
    for n in 0..3 {
        assert!(!rig.engine.progress().tearing_down, "after {n}");
        first_score(&mut rig, unusable());
        let end = TakeEnd::Failed("reward_unusable".into());
        assert_eq!(rig.end_of(n), Some(&end), "not taken again");
    }
    assert!(rig.engine.progress().tearing_down);
    rig.tear_down();
    rig.write_step();
    let result = rig.result.expect("decided");
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    assert_eq!(
        result.message,
        "the reward function cannot be used: rewards.score: ImportError: no module named numpy"
    );
}

#[test]
fn one_reward_in_between_says_that_the_function_can_be_called() {
    let mut rig = Rig::start(EngineConfig::new(8, 4, 100));
    for _ in 0..4 {
        first_score(&mut rig, unusable());
        first_score(&mut rig, unusable());
        first_score(&mut rig, ScoreEnd::Scored);
    }
    assert!(!rig.engine.progress().tearing_down);
}
