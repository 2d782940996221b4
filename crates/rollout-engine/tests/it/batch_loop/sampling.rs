//! Which groups are taken, how many run, and which are kept.

use rollout_engine::{
    Command, EngineConfig, Event, Granularity, GroupIndex, Reason, Surplus, TakeEnd, TakeId,
    Verdict,
};

use crate::rig::Rig;

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

/// Answers the next load: the row is left out.
fn skip(rig: &mut Rig) {
    let command = rig.take_command(|c| matches!(c, Command::Load { .. }));
    let Some(Command::Load { take, .. }) = command else {
        panic!("nothing is loaded: {:?}", rig.pending);
    };
    let reason = "prompt_too_long".to_owned();
    rig.send(Event::PromptSkipped { take, reason });
}

#[test]
fn when_every_row_is_left_out_the_job_ends_after_one_epoch() {
    let mut rig = Rig::start(EngineConfig::new(4, 2, 10));
    for n in 0..10 {
        assert!(!rig.engine.progress().tearing_down, "after {n} rows");
        skip(&mut rig);
    }
    rig.tear_down();
    rig.write_step();
    let result = rig.result.expect("decided");
    assert_eq!(result.reason, Reason::DatasetExhausted);
    assert_eq!(result.message, "every row of the data set was left out");
    assert_eq!(rig.engine.book().total().filtered["prompt_too_long"], 10);
}

#[test]
fn one_row_that_is_used_keeps_the_job_going() {
    let mut rig = Rig::start(EngineConfig::new(4, 2, 10));
    for _ in 0..3 {
        for _ in 0..9 {
            skip(&mut rig);
        }
        let command = rig.take_command(|c| matches!(c, Command::Load { .. }));
        let Some(Command::Load { take, .. }) = command else {
            panic!("nothing is loaded: {:?}", rig.pending);
        };
        let slots = Vec::new();
        rig.send(Event::PromptReady { take, slots });
    }
    assert!(!rig.engine.progress().tearing_down);
}
