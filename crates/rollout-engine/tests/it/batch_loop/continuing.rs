//! What is taken again: recycled prompts, partial rollout, restarts, and ends that are not the target.

use rollout_engine::{
    Command, EngineConfig, Event, GroupIndex, Reason, Record, Rung, SampleEnd, SlotStart,
    StopCause, TakeId,
};

use crate::rig::{Rig, replay};

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
fn a_part_that_is_interrupted_before_it_grew_is_kept_for_the_next_take() {
    let mut config = EngineConfig::new(1, 1, 10);
    config.fetch = 2;
    config.steps = 3;
    config.partial = true;
    let mut rig = Rig::start(config);
    rig.keep_group(TakeId(0));
    rig.tear_down();
    rig.write_step();
    let (resumed, other) = (TakeId(2), TakeId(3));
    rig.take_command(|c| matches!(c, Command::Load { take, .. } if *take == resumed));
    rig.send(Event::PromptReady {
        take: resumed,
        slots: vec![SlotStart::Resume],
    });
    rig.keep_group(other);
    let key = rig.generating().into_iter().find(|k| k.take == resumed);
    let end = SampleEnd::Aborted { tokens: 0 };
    rig.end_sample(key.expect("it is generated"), end);
    let entry = rig.engine.book().front.front().expect("it waits");
    assert!(entry.samples, "with what the first step generated");
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
