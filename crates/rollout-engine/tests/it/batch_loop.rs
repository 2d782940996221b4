//! Every promise of the batch loop, by name.

use std::time::Duration;

use rollout_engine::{
    Command, EngineConfig, Event, Granularity, GroupIndex, Reason, Record, Rung, SampleEnd,
    Scoring, SlotStart, StopCause, Surplus, TakeEnd, TakeId, Verdict,
};

use crate::rig::{Rig, replay};

fn infra() -> SampleEnd {
    SampleEnd::Infra {
        cause: "engine_gone".into(),
    }
}

fn drop_group(reason: &str) -> Verdict {
    Verdict::Drop {
        reason: reason.into(),
    }
}

#[test]
fn a_step_without_trouble_keeps_its_target_and_finishes() {
    let mut rig = Rig::start(EngineConfig::new(2, 2, 10));
    rig.keep_group(TakeId(0));
    rig.keep_group(TakeId(1));
    rig.tear_down();
    rig.write_step();
    let result = rig.result.expect("decided");
    assert_eq!(result.reason, Reason::TargetReached);
    assert!(result.success);
    assert_eq!(rig.engine.book().total().kept, 2);
}

#[test]
fn a_surplus_group_of_the_same_wake_up_is_recycled_not_dropped() {
    let mut config = EngineConfig::new(1, 1, 10);
    config.fetch = 2;
    config.partial = true;
    let mut rig = Rig::start(config);
    rig.finish_group(TakeId(0));
    rig.finish_group(TakeId(1));
    rig.filter(TakeId(0), Verdict::Keep);
    rig.filter(TakeId(1), Verdict::Keep);
    assert_eq!(rig.end_of(1), Some(&TakeEnd::Recycled("surplus".into())));
    let waiting = rig
        .engine
        .book()
        .front
        .front()
        .expect("in the front buffer");
    assert_eq!(waiting.group, GroupIndex(1));
    assert!(waiting.samples, "its samples are kept for the next step");
}

#[test]
fn a_surplus_group_is_written_as_surplus_when_asked() {
    let mut config = EngineConfig::new(1, 1, 10);
    config.fetch = 2;
    config.surplus = Surplus::Write;
    let mut rig = Rig::start(config);
    rig.finish_group(TakeId(0));
    rig.finish_group(TakeId(1));
    rig.filter(TakeId(0), Verdict::Keep);
    rig.filter(TakeId(1), Verdict::Keep);
    assert_eq!(rig.end_of(1), Some(&TakeEnd::Filtered("surplus".into())));
}

#[test]
fn a_failed_group_is_retried_then_failed_with_its_reason() {
    let mut config = EngineConfig::new(1, 2, 1);
    config.limits.group_tries = 3;
    let mut rig = Rig::start(config);
    let mut ends = Vec::new();
    for take in 0..3 {
        rig.load_all();
        let keys = rig.generating();
        rig.finish_sample(keys[0]);
        rig.take_command(|c| matches!(c, Command::Score { .. }));
        rig.send(Event::SampleScored {
            take: TakeId(take),
            slot: keys[0].slot,
            scored: false,
        });
        rig.end_sample(keys[1], SampleEnd::Aborted { tokens: 1 });
        ends.push(rig.end_of(take).cloned());
    }
    let failed = "reward_failed".to_owned();
    assert_eq!(
        ends,
        [
            Some(TakeEnd::Recycled(failed.clone())),
            Some(TakeEnd::Recycled(failed.clone())),
            Some(TakeEnd::Failed(failed)),
        ]
    );
}

#[test]
fn when_every_group_fails_the_error_budget_ends_the_job() {
    let mut rig = Rig::start(EngineConfig::new(4, 1, 1000));
    for _ in 0..1000 {
        rig.load_all();
        let Some(key) = rig.generating().first().copied() else {
            break;
        };
        rig.end_sample(
            key,
            SampleEnd::Rejected {
                reason: "prompt_too_long".into(),
            },
        );
    }
    rig.tear_down();
    rig.write_step();
    let result = rig.result.expect("decided");
    assert_eq!(result.reason, Reason::ErrorBudgetExceeded);
    assert_eq!(result.message, "16 groups in a row failed");
    assert!(
        rig.engine.book().total().taken < 30,
        "it did not go on taking prompts"
    );
}

#[test]
fn a_request_that_the_engine_refuses_fails_its_group_without_a_retry() {
    let mut rig = Rig::start(EngineConfig::new(1, 2, 10));
    rig.load_all();
    let key = rig.generating()[0];
    rig.end_sample(
        key,
        SampleEnd::Rejected {
            reason: "prompt_too_long".into(),
        },
    );
    assert_eq!(
        rig.end_of(0),
        Some(&TakeEnd::Failed("prompt_too_long".into()))
    );
    let sibling = rig.generating()[0];
    assert!(
        rig.pending.contains(&Command::Cancel { key: sibling }),
        "the sibling is cancelled"
    );
}

#[test]
fn an_infrastructure_failure_runs_one_sample_again_and_leaves_its_siblings_alone() {
    let mut rig = Rig::start(EngineConfig::new(1, 3, 10));
    rig.load_all();
    let keys = rig.generating();
    rig.end_sample(keys[1], infra());
    assert_eq!(
        rig.generating(),
        vec![keys[0], keys[2]],
        "a pause comes first"
    );
    rig.advance(Duration::from_millis(250));
    let again = rig.generating();
    assert_eq!(again.len(), 3);
    assert_eq!((again[2].slot, again[2].attempt), (1, 1));
    rig.finish_group(TakeId(0));
    rig.filter(TakeId(0), Verdict::Keep);
    assert_eq!(rig.end_of(0), Some(&TakeEnd::Kept));
    assert_eq!(rig.engine.progress().infra_failures, 1);
}

#[test]
fn refills_of_one_sample_are_bounded_and_pause_longer_each_time() {
    let mut config = EngineConfig::new(1, 1, 10);
    config.limits.sample_refills = 3;
    config.limits.group_tries = 1;
    let mut rig = Rig::start(config);
    rig.load_all();
    let mut pauses = Vec::new();
    while let Some(key) = rig.generating().first().copied() {
        rig.end_sample(key, infra());
        if rig.end_of(0).is_some() {
            break;
        }
        let due = rig.engine.next_wakeup().expect("a refill waits");
        let pause = due.saturating_sub(rig.now);
        pauses.push(pause.as_millis());
        rig.advance(pause);
    }
    assert_eq!(pauses, [250, 500, 1000]);
    assert_eq!(
        rig.end_of(0),
        Some(&TakeEnd::Failed("infra: engine_gone".into()))
    );
}

#[test]
fn a_thousand_samples_that_die_with_their_engine_are_one_incident() {
    let mut config = EngineConfig::new(100, 10, 1000);
    config.limits.infra_incidents = 2;
    let mut rig = Rig::start(config);
    rig.load_all();
    rig.now = Duration::from_secs(1);
    for key in rig.generating() {
        rig.end_sample(key, infra());
    }
    rig.advance(Duration::from_mins(1));
    assert!(!rig.engine.progress().tearing_down);
    assert_eq!(rig.generating().len(), 1000, "all of them run again");
    for key in rig.generating() {
        rig.end_sample(key, infra());
    }
    assert!(!rig.engine.progress().tearing_down, "the second wave");
    rig.advance(Duration::from_mins(1));
    for key in rig.generating() {
        rig.end_sample(key, infra());
    }
    assert!(
        rig.engine.progress().tearing_down,
        "the third wave is over the budget"
    );
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
        scored: true,
    });
    rig.filter(TakeId(0), Verdict::Keep);
    assert_eq!(rig.end_of(0), Some(&TakeEnd::Kept));
}

#[test]
fn oversampling_takes_a_batch_and_tops_up_when_too_few_are_pending() {
    let mut config = EngineConfig::new(2, 1, 100);
    config.fetch = 3;
    let mut rig = Rig::start(config);
    assert_eq!(rig.engine.book().next_take, TakeId(3));
    for take in 0..2 {
        rig.finish_group(TakeId(take));
        rig.filter(TakeId(take), drop_group("zero_std_0.0"));
    }
    assert_eq!(
        rig.engine.book().next_take,
        TakeId(6),
        "one was pending, two are needed"
    );
}

#[test]
fn sample_granularity_tops_up_while_stragglers_hold_their_groups() {
    let mut config = EngineConfig::new(2, 4, 100);
    config.granularity = Granularity::Sample;
    config.fetch = 2;
    let mut rig = Rig::start(config);
    rig.load_all();
    let keys = rig.generating();
    assert_eq!(keys.len(), 8);
    for key in &keys[0..3] {
        rig.finish_sample(*key);
    }
    assert_eq!(rig.engine.book().next_take, TakeId(2));
    rig.finish_sample(keys[4]);
    assert_eq!(
        rig.engine.book().next_take,
        TakeId(4),
        "four samples are in flight: room for a group of four"
    );
}

#[test]
fn groups_that_never_pass_the_filter_end_the_job() {
    let mut config = EngineConfig::new(1, 1, 4);
    config.limits.consecutive_filtered = 8;
    let mut rig = Rig::start(config);
    for take in 0..8 {
        rig.finish_group(TakeId(take));
        rig.filter(TakeId(take), drop_group("zero_std_0.0"));
    }
    rig.tear_down();
    rig.write_step();
    assert_eq!(
        rig.result.expect("decided").reason,
        Reason::DatasetExhausted
    );
    assert_eq!(rig.engine.book().total().filtered["zero_std_0.0"], 8);
}

#[test]
fn bad_rows_are_counted_and_bounded() {
    let mut config = EngineConfig::new(1, 1, 10);
    config.limits.bad_rows = 2;
    let mut rig = Rig::start(config);
    for take in 0..3 {
        assert!(
            rig.take_command(|c| matches!(c, Command::Load { .. }))
                .is_some()
        );
        rig.send(Event::PromptRefused { take: TakeId(take) });
    }
    assert_eq!(rig.engine.book().total().failed["bad_row"], 3);
    assert!(rig.engine.progress().tearing_down);
}

#[test]
fn no_more_samples_than_allowed_are_in_flight() {
    let mut config = EngineConfig::new(4, 4, 100);
    config.max_in_flight = 5;
    let mut rig = Rig::start(config);
    rig.load_all();
    assert_eq!(rig.generating().len(), 5);
    let key = rig.generating()[0];
    rig.finish_sample(key);
    assert_eq!(rig.generating().len(), 5);
}

#[test]
fn without_partial_an_unneeded_prompt_waits_for_the_end_of_the_epoch() {
    let mut config = EngineConfig::new(1, 1, 4);
    config.fetch = 2;
    config.steps = 3;
    let mut rig = Rig::start(config);
    rig.keep_group(TakeId(0));
    rig.tear_down();
    assert_eq!(rig.engine.book().tail[0].due, GroupIndex(4));
    rig.write_step();
    // Step 1 takes groups 2 and 3: the epoch is over, so group 1 comes before group 4.
    rig.keep_group(TakeId(2));
    rig.tear_down();
    rig.write_step();
    let groups: Vec<u64> = rig
        .records
        .iter()
        .filter_map(|r| match r {
            Record::Taken { group, .. } => Some(group.0),
            _ => None,
        })
        .collect();
    assert_eq!(groups, [0, 1, 2, 3, 1, 3]);
}

#[test]
fn partial_rollout_resumes_from_the_front_buffer_in_the_next_step() {
    let mut config = EngineConfig::new(1, 2, 10);
    config.fetch = 2;
    config.steps = 2;
    config.partial = true;
    let mut rig = Rig::start(config);
    rig.load_all();
    let done = rig.generating().into_iter().find(|k| k.take == TakeId(1));
    rig.finish_sample(done.expect("generating"));
    rig.keep_group(TakeId(0));
    rig.tear_down();
    rig.write_step();
    assert_eq!(
        rig.pending
            .iter()
            .find(|c| matches!(c, Command::Load { .. })),
        Some(&Command::Load {
            take: TakeId(2),
            group: GroupIndex(1),
            source: rollout_engine::Source::Queue(rollout_engine::QueueName::Front),
        })
    );
    rig.take_command(|c| matches!(c, Command::Load { .. }));
    rig.send(Event::PromptReady {
        take: TakeId(2),
        slots: vec![SlotStart::Finished { scored: false }, SlotStart::Generate],
    });
    assert!(
        rig.pending.contains(&Command::Score {
            take: TakeId(2),
            slot: 0
        }),
        "the finished sample is scored, not generated again"
    );
    assert_eq!(
        rig.generating()
            .iter()
            .filter(|k| k.take == TakeId(2))
            .count(),
        1
    );
}

#[test]
fn a_restart_keeps_kept_groups_and_recycles_those_in_flight() {
    let config = EngineConfig::new(2, 1, 10);
    let mut rig = Rig::start(config.clone());
    rig.keep_group(TakeId(0));
    rig.load_all();
    let records = rig.records;
    let mut again = Rig::resume(config, records);
    assert_eq!(again.engine.progress().kept, 1);
    assert_eq!(again.engine.book().total().recycled["restart"], 1);
    let take = again.engine.book().open.keys().next().copied();
    again.keep_group(take.expect("group 1 is taken again"));
    again.tear_down();
    again.write_step();
    let book = replay(&again.records);
    assert_eq!((book.total().kept, book.total().taken), (2, 3));
    assert!(again.result.expect("decided").success);
}

#[test]
fn an_interrupted_job_climbs_the_ladder_and_stays_undecided() {
    let mut rig = Rig::start(EngineConfig::new(2, 1, 10));
    rig.keep_group(TakeId(0));
    rig.send(Event::Stop(StopCause::Interrupted));
    rig.tear_down();
    let result = rig.result.clone().expect("over");
    assert_eq!(result.reason, Reason::Interrupted);
    assert!(
        rig.engine.book().result.is_none(),
        "a later start continues"
    );
    let mut again = Rig::resume(EngineConfig::new(2, 1, 10), rig.records);
    assert!(again.result.is_none());
    let take = again.engine.book().open.keys().next().copied();
    again.keep_group(take.expect("taken again"));
    assert_eq!(again.climbing(), Some(Rung::Fence));
}

#[test]
fn a_decided_job_stays_decided_after_a_restart() {
    let mut rig = Rig::start(EngineConfig::new(1, 1, 10));
    rig.keep_group(TakeId(0));
    rig.tear_down();
    rig.write_step();
    let again = Rig::resume(EngineConfig::new(1, 1, 10), rig.records);
    assert_eq!(again.result, rig.result);
    assert!(again.pending.is_empty());
}

#[test]
fn the_deadline_ends_the_job_with_what_it_has() {
    let mut rig = Rig::start(EngineConfig::new(2, 1, 10));
    rig.keep_group(TakeId(0));
    rig.send(Event::Stop(StopCause::Deadline));
    rig.tear_down();
    let write = rig.take_command(|c| {
        matches!(
            c,
            Command::WriteStep {
                complete: false,
                ..
            }
        )
    });
    assert!(write.is_some());
    rig.send(Event::StepWritten);
    assert_eq!(
        rig.result.expect("decided").reason,
        Reason::DeadlineExceeded
    );
}

#[test]
fn an_agent_that_can_be_started_nowhere_ends_the_job_soon() {
    let mut rig = Rig::start(EngineConfig::new(100, 4, 1000));
    rig.load_all();
    let cause = "agent_not_loaded".to_owned();
    for key in rig.generating().into_iter().take(15) {
        let cause = cause.clone();
        rig.end_sample(key, SampleEnd::Setup { cause });
    }
    let lucky = rig.generating()[0];
    rig.finish_sample(lucky);
    for key in rig.generating().into_iter().take(15) {
        let cause = cause.clone();
        rig.end_sample(key, SampleEnd::Setup { cause });
    }
    assert!(
        !rig.engine.progress().tearing_down,
        "one sample got through in between"
    );
    let key = rig.generating()[0];
    rig.end_sample(key, SampleEnd::Setup { cause });
    assert!(rig.engine.progress().tearing_down);
}
