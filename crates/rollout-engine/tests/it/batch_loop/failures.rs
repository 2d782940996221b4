//! Failures: what they cost, and when they end the job.

use std::time::Duration;

use rollout_engine::{
    Blame, Command, Company, EngineConfig, Event, Reason, SampleEnd, SampleKey, ScoreEnd, TakeEnd,
    TakeId, Verdict,
};

use crate::rig::Rig;

fn infra() -> SampleEnd {
    SampleEnd::Infra {
        cause: "engine_gone".into(),
    }
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
            end: ScoreEnd::Failed,
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

fn unusable() -> SampleEnd {
    SampleEnd::Unusable {
        cause: "agent_not_loaded".into(),
        problem: "the agent cannot be loaded: SyntaxError: invalid syntax".into(),
    }
}

#[test]
fn an_agent_that_is_broken_everywhere_ends_the_job_with_the_third_try() {
    let mut rig = Rig::start(EngineConfig::new(100, 4, 1000));
    rig.load_all();
    let keys = rig.generating();
    rig.end_sample(keys[0], unusable());
    rig.end_sample(keys[1], unusable());
    rig.finish_sample(keys[2]);
    rig.end_sample(keys[3], unusable());
    rig.end_sample(keys[4], unusable());
    let tearing_down = rig.engine.progress().tearing_down;
    assert!(!tearing_down, "one sample got through in between");
    rig.end_sample(keys[5], unusable());
    assert!(rig.engine.progress().tearing_down);
}

fn shared_death() -> SampleEnd {
    SampleEnd::SharedDeath {
        cause: "shared_process_died".into(),
    }
}

/// Neither failures nor refills are allowed.
fn without_patience() -> EngineConfig {
    let mut config = EngineConfig::new(1, 1, 10);
    config.limits.sample_refills = 0;
    config.limits.infra_incidents = 0;
    config
}

/// Lets the one sample die in so many shared processes; answers with whom it ran, and its next execution.
fn die(rig: &mut Rig, times: u32) -> (Vec<Company>, SampleKey) {
    let mut company = Vec::new();
    loop {
        let next = rig.take_command(|c| matches!(c, Command::Generate { .. }));
        let Some(Command::Generate {
            key, company: with, ..
        }) = next
        else {
            panic!("it is not run again: {:?}", rig.settled);
        };
        company.push(with);
        if key.attempt == times {
            return (company, key);
        }
        rig.end_sample(key, shared_death());
        rig.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_sample_that_was_in_two_shared_processes_that_died_runs_alone_and_has_cost_nothing() {
    let mut rig = Rig::start(without_patience());
    rig.load_all();
    let (company, key) = die(&mut rig, 2);
    assert_eq!(company, [Company::Any, Company::Any, Company::Alone]);
    rig.finish_sample(key);
    rig.score_all();
    rig.filter(TakeId(0), Verdict::Keep);
    assert_eq!(rig.end_of(0), Some(&TakeEnd::Kept));
}

#[test]
fn one_that_cannot_be_kept_alone_uses_up_the_budget() {
    let mut rig = Rig::start(without_patience());
    rig.load_all();
    let (_, key) = die(&mut rig, 2);
    rig.end_sample(key, shared_death());
    assert!(rig.engine.progress().tearing_down);
}

/// The next execution, and whose failure it is when its agent runs out of memory.
fn next_blame(rig: &mut Rig) -> (SampleKey, Blame) {
    let next = rig.take_command(|c| matches!(c, Command::Generate { .. }));
    let Some(Command::Generate {
        key, out_of_memory, ..
    }) = next
    else {
        panic!("it is not run again: {:?}", rig.settled);
    };
    (key, out_of_memory)
}

#[test]
fn an_agent_that_runs_out_of_memory_is_run_again_once_and_to_blame_after_that() {
    let mut rig = Rig::start(EngineConfig::new(1, 1, 10));
    rig.load_all();
    let (first, blame) = next_blame(&mut rig);
    assert_eq!(blame, Blame::Nobody);
    rig.end_sample(
        first,
        SampleEnd::OutOfMemory {
            cause: "out_of_memory".into(),
        },
    );
    assert_eq!(rig.engine.progress().infra_failures, 1);
    rig.advance(Duration::from_secs(1));
    let (second, blame) = next_blame(&mut rig);
    assert_eq!((second.attempt, blame), (1, Blame::Agent));
}
