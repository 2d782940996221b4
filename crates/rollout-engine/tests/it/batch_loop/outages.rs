//! Engines that serve nobody for a while, or for ever.

use std::time::Duration;

use rollout_engine::{
    Command, EngineConfig, Event, Reason, SampleEnd, SampleKey, ScoreEnd, StopCause, TakeEnd,
    TakeId,
};

use crate::rig::Rig;

fn unserved() -> SampleEnd {
    SampleEnd::Unserved {
        cause: "unavailable".into(),
    }
}

fn infra() -> SampleEnd {
    SampleEnd::Infra {
        cause: "server_error".into(),
    }
}

/// The defaults of a job, 40 groups of 4 samples.
fn job() -> EngineConfig {
    let mut config = EngineConfig::new(40, 4, 1000);
    config.limits.sample_refills = 3;
    config.limits.group_tries = 2;
    config
}

/// Everything that is under way ends like this.
fn all_end(rig: &mut Rig, end: &SampleEnd) {
    rig.load_all();
    for key in rig.generating() {
        rig.end_sample(key, end.clone());
    }
    rig.load_all();
}

/// The pause until something is started again; it is over then.
fn pause(rig: &mut Rig) -> Duration {
    assert_eq!(rig.generating(), [], "nothing is started before");
    let due = rig.engine.next_wakeup().expect("it will be tried again");
    let pause = due.saturating_sub(rig.now);
    rig.advance(pause);
    pause
}

fn decided(rig: &mut Rig) -> (Reason, String) {
    rig.tear_down();
    rig.write_step();
    let result = rig.result.clone().expect("decided");
    (result.reason, result.message)
}

#[test]
fn an_outage_of_minutes_costs_no_group_and_no_incident() {
    let mut config = job();
    config.limits.infra_incidents = 0;
    let mut rig = Rig::start(config);
    let mut pauses = Vec::new();
    for _ in 0..15 {
        all_end(&mut rig, &unserved());
        pauses.push(pause(&mut rig).as_secs());
    }
    assert_eq!(
        pauses,
        [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30]
    );
    assert_eq!(rig.generating().len(), 160, "all of them are tried again");
    for take in 0..40 {
        rig.keep_group(TakeId(take));
    }
    let total = rig.engine.book().total();
    assert_eq!((total.taken, total.kept), (40, 40), "{total:?}");
}

#[test]
fn an_outage_that_does_not_end_ends_the_job_with_what_it_was() {
    let mut rig = Rig::start(job());
    for _ in 0..15 {
        all_end(&mut rig, &unserved());
        pause(&mut rig);
    }
    all_end(&mut rig, &unserved());
    assert!(rig.engine.progress().tearing_down);
    let message = "no engine served anything 16 times in a row, for 331 s".to_owned();
    assert_eq!(decided(&mut rig), (Reason::ErrorBudgetExceeded, message));
}

#[test]
fn a_sample_that_was_served_ends_the_outage() {
    let mut rig = Rig::start(job());
    for _ in 0..10 {
        for _ in 0..10 {
            all_end(&mut rig, &unserved());
            pause(&mut rig);
        }
        let lucky = rig.generating()[0];
        rig.finish_sample(lucky);
        all_end(&mut rig, &unserved());
        assert_eq!(pause(&mut rig).as_secs(), 1, "the next one begins anew");
    }
    assert!(!rig.engine.progress().tearing_down);
}

#[test]
fn what_is_served_while_others_wait_lets_them_go_on() {
    let mut rig = Rig::start(job());
    rig.load_all();
    let keys = rig.generating();
    for key in &keys[1..] {
        rig.end_sample(*key, unserved());
    }
    rig.finish_sample(keys[0]);
    assert_eq!(rig.generating(), []);
    rig.advance(Duration::from_secs(1));
    assert_eq!(rig.generating().len(), 159);
}

#[test]
fn a_stop_does_not_wait_for_the_engines() {
    let mut rig = Rig::start(job());
    for _ in 0..8 {
        all_end(&mut rig, &unserved());
        pause(&mut rig);
    }
    all_end(&mut rig, &unserved());
    rig.send(Event::Stop(StopCause::Interrupted));
    assert!(rig.engine.progress().tearing_down);
    rig.tear_down();
    let result = rig.result.expect("at once");
    assert_eq!(result.reason, Reason::Interrupted);
}

#[test]
fn groups_that_fail_together_count_once() {
    let mut rig = Rig::start(job());
    for round in 1..16 {
        // A first execution and three refills.
        for _ in 0..4 {
            all_end(&mut rig, &infra());
            if rig.generating().is_empty() {
                pause(&mut rig);
            }
        }
        let total = rig.engine.book().total();
        assert_eq!(total.ended(), round * 40, "all of them failed: {total:?}");
        assert!(!rig.engine.progress().tearing_down, "round {round}");
    }
    for _ in 0..4 {
        all_end(&mut rig, &infra());
        if let Some(due) = rig.engine.next_wakeup() {
            rig.advance(due.saturating_sub(rig.now));
        }
    }
    assert!(rig.engine.progress().tearing_down);
    let minutes = rig.now.as_secs() / 60;
    assert!((5..=10).contains(&minutes), "{:?}", rig.now);
    let message = "16 groups in a row failed".to_owned();
    assert_eq!(decided(&mut rig), (Reason::ErrorBudgetExceeded, message));
}

#[test]
fn rewards_that_fail_together_count_once() {
    let mut config = EngineConfig::new(40, 1, 1000);
    config.limits.consecutive_group_failures = 2;
    let mut rig = Rig::start(config);
    let fail = |rig: &mut Rig, times: usize| {
        rig.load_all();
        for key in rig.generating().into_iter().take(times) {
            rig.finish_sample(key);
            let scoring = rig.take_command(|c| matches!(c, Command::Score { .. }));
            assert!(scoring.is_some());
            rig.send(Event::SampleScored {
                take: key.take,
                slot: key.slot,
                end: ScoreEnd::Failed,
            });
        }
    };
    fail(&mut rig, 40);
    assert!(!rig.engine.progress().tearing_down, "they ran together");
    fail(&mut rig, 1);
    assert!(rig.engine.progress().tearing_down, "this one came after");
    let ends = rig
        .settled
        .iter()
        .filter(|(_, end)| *end == TakeEnd::Recycled("reward_failed".into()));
    assert_eq!(ends.count(), 41);
}

#[test]
fn nothing_is_due_while_no_more_may_run() {
    let mut config = EngineConfig::new(2, 1, 10);
    config.max_in_flight = 1;
    let mut rig = Rig::start(config);
    rig.load_all();
    let first: SampleKey = rig.generating()[0];
    rig.end_sample(first, infra());
    assert_eq!(rig.generating().len(), 1, "the other one runs");
    rig.advance(Duration::from_secs(1));
    assert_eq!(
        rig.engine.next_wakeup(),
        None,
        "a time that is over would be asked for again and again"
    );
    let other = rig.generating()[0];
    rig.finish_sample(other);
    assert_eq!(rig.generating().len(), 1, "the first one runs again");
}
