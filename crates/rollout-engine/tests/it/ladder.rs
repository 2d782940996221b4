//! The teardown ladder: order, deadlines, failing rungs, re-entry.

use std::time::Duration;

use rollout_engine::{
    Command, EngineConfig, Event, HookOutcome, LadderConfig, Reach, Reason, Rung, RungOutcome,
    RungReport, SampleEnd, StopCause, TakeEnd, TakeId, TeardownSummary,
};

use crate::rig::Rig;

fn agentic(steps: u32) -> EngineConfig {
    let mut config = EngineConfig::new(1, 1, 10);
    config.fetch = 3;
    config.steps = steps;
    config.ladder = LadderConfig {
        hook: Some(Duration::from_secs(30)),
        ..LadderConfig::default()
    };
    config
}

/// A job that has what it needs, at the foot of its ladder; what else it began is in flight.
fn at_the_foot(config: EngineConfig) -> Rig {
    let mut rig = Rig::start(config);
    rig.load_all();
    rig.keep_group(TakeId(0));
    rig
}

fn done(rig: &mut Rig, rungs: &[Rung]) {
    for rung in rungs {
        rig.answer_rung(*rung, RungOutcome::Done);
    }
}

/// What the agents' hook came to.
fn hook_ended(rig: &mut Rig, hook: HookOutcome) {
    let mut report = RungReport::new(Rung::Hook, RungOutcome::Done);
    report.hook = Some(hook);
    rig.send(Event::RungEnded {
        rung: Rung::Hook,
        report,
    });
}

fn summary(rig: &Rig) -> TeardownSummary {
    TeardownSummary::of(&rig.engine.book().rungs)
}

fn climbed(rig: &mut Rig) -> Vec<Rung> {
    let mut rungs = Vec::new();
    while let Some(Command::Climb { rung, .. }) =
        rig.take_command(|c| matches!(c, Command::Climb { .. }))
    {
        rungs.push(rung);
    }
    rungs
}

#[test]
fn the_rungs_come_in_order_and_drain_ends_when_nothing_is_in_flight() {
    let mut rig = at_the_foot(agentic(1));
    let mut order = climbed(&mut rig);
    for rung in [Rung::Fence, Rung::Abort, Rung::Hook] {
        rig.answer_rung(rung, RungOutcome::Done);
        order.extend(climbed(&mut rig));
    }
    assert_eq!(order, [Rung::Fence, Rung::Abort, Rung::Hook, Rung::Drain]);
    for key in rig.generating() {
        rig.end_sample(key, SampleEnd::Aborted { tokens: 4 });
    }
    assert_eq!(
        climbed(&mut rig),
        [Rung::Collect, Rung::Release],
        "no straggler, so no second abort"
    );
    done(&mut rig, &[Rung::Release, Rung::Prove]);
    rig.write_step();
    assert_eq!(rig.result.expect("decided").reason, Reason::TargetReached);
}

#[test]
fn a_failing_rung_never_skips_the_next() {
    let mut rig = at_the_foot(agentic(1));
    for rung in [Rung::Fence, Rung::Abort, Rung::Hook] {
        assert_eq!(rig.climbing(), Some(rung));
        rig.answer_rung(rung, RungOutcome::Failed("connection refused".into()));
    }
    for key in rig.generating() {
        rig.end_sample(key, SampleEnd::Aborted { tokens: 0 });
    }
    for rung in [Rung::Release, Rung::Prove] {
        assert_eq!(rig.climbing(), Some(rung));
        rig.answer_rung(rung, RungOutcome::Failed("connection refused".into()));
    }
    rig.write_step();
    assert!(rig.result.expect("decided").success);
}

#[test]
fn a_silent_rung_ends_at_its_deadline() {
    let mut rig = at_the_foot(agentic(1));
    done(&mut rig, &[Rung::Fence, Rung::Abort]);
    rig.advance(Duration::from_secs(31));
    assert_eq!(
        rig.climbing(),
        Some(Rung::Hook),
        "the shell may still report"
    );
    rig.advance(Duration::from_secs(1));
    assert_eq!(rig.climbing(), Some(Rung::Drain));
    let sum = summary(&rig);
    assert_eq!(sum.hook, Some(HookOutcome::HookTimedOut));
    rig.answer_rung(Rung::Hook, RungOutcome::Done);
    let late = summary(&rig);
    assert_eq!(late.hook, Some(HookOutcome::HookTimedOut), "too late");
}

#[test]
fn stragglers_are_cancelled_and_aborted_again_after_the_drain() {
    let mut rig = at_the_foot(agentic(1));
    done(&mut rig, &[Rung::Fence, Rung::Abort, Rung::Hook]);
    let running = rig.generating();
    assert_eq!(running.len(), 2);
    rig.end_sample(running[0], SampleEnd::Aborted { tokens: 4 });
    rig.advance(Duration::from_mins(1));
    assert!(rig.pending.contains(&Command::Cancel { key: running[1] }));
    assert_eq!(rig.climbing(), Some(Rung::SecondAbort));
    rig.answer_rung(Rung::SecondAbort, RungOutcome::Done);
    assert_eq!(rig.climbing(), Some(Rung::Collect));
    // It does not even end when it is cancelled: given up, its prompt is not lost.
    rig.advance(Duration::from_mins(1));
    assert_eq!(rig.climbing(), Some(Rung::Release));
    done(&mut rig, &[Rung::Release, Rung::Prove]);
    let sum = summary(&rig);
    assert_eq!(sum.stragglers, 1);
    assert_eq!(sum.drain_millis, 60_000);
    assert!(sum.troubles.iter().any(|t| t == "Drain: timed out"));
    assert!(matches!(rig.end_of(2), Some(TakeEnd::Recycled(_))));
    rig.write_step();
    assert!(rig.result.expect("decided").success);
}

#[test]
fn a_job_without_agents_never_calls_a_hook() {
    let mut rig = at_the_foot(EngineConfig::new(1, 1, 10));
    done(&mut rig, &[Rung::Fence, Rung::Abort]);
    let rungs = climbed(&mut rig);
    assert!(!rungs.contains(&Rung::Hook), "{rungs:?}");
    let sum = summary(&rig);
    assert_eq!(sum.hook, Some(HookOutcome::NoHook));
}

#[test]
fn after_a_crash_the_ladder_begins_again_but_calls_a_known_hook_no_second_time() {
    let mut rig = at_the_foot(agentic(1));
    done(&mut rig, &[Rung::Fence, Rung::Abort]);
    hook_ended(&mut rig, HookOutcome::HookSucceeded);
    let mut again = Rig::resume(agentic(1), rig.records);
    assert!(
        !again
            .pending
            .iter()
            .any(|c| matches!(c, Command::Reopen { .. })),
        "admission stays closed"
    );
    assert_eq!(again.climbing(), Some(Rung::Fence));
    done(&mut again, &[Rung::Fence, Rung::Abort]);
    assert_eq!(
        again.climbing(),
        Some(Rung::Release),
        "hook known, nothing in flight"
    );
    done(&mut again, &[Rung::Release, Rung::Prove]);
    again.write_step();
    let sum = summary(&again);
    assert_eq!(sum.hook, None, "the next step starts clean");
}

#[test]
fn an_interrupted_ladder_is_not_the_ladder_of_what_is_taken_later() {
    let mut rig = Rig::start(agentic(1));
    rig.load_all();
    rig.send(Event::Stop(StopCause::Interrupted));
    done(&mut rig, &[Rung::Fence, Rung::Abort]);
    hook_ended(&mut rig, HookOutcome::HookSucceeded);
    rig.tear_down();
    let mut again = Rig::resume(agentic(1), rig.records);
    again.load_all();
    let take = again.engine.book().open.keys().next().copied();
    again.keep_group(take.expect("taken again"));
    done(&mut again, &[Rung::Fence, Rung::Abort]);
    assert_eq!(
        again.climbing(),
        Some(Rung::Hook),
        "the agents of these sessions have not been told"
    );
    assert_eq!(again.engine.book().rungs.len(), 2, "one ladder's reports");
}

#[test]
fn between_steps_admission_opens_again() {
    let mut rig = Rig::start(agentic(2));
    rig.keep_group(TakeId(0));
    rig.tear_down();
    rig.pending.clear();
    rig.send(Event::StepWritten);
    assert!(
        rig.pending
            .iter()
            .any(|c| matches!(c, Command::Reopen { step } if step.0 == 1))
    );
}

/// A rung's report that says who still answers.
fn answer(rig: &mut Rig, rung: Rung, reach: Reach, unproven: u64) {
    rig.take_command(|c| matches!(c, Command::Climb { rung: r, .. } if *r == rung));
    let mut report = RungReport::new(rung, RungOutcome::Done);
    report.reach = reach;
    report.unproven = unproven;
    rig.send(Event::RungEnded { rung, report });
}

fn given(rig: &Rig, rung: Rung) -> Duration {
    let climb = rig.pending.iter().find_map(|command| match command {
        Command::Climb { rung: r, within } if *r == rung => Some(*within),
        _ => None,
    });
    climb.unwrap_or_else(|| panic!("{rung:?} is not climbed: {:?}", rig.pending))
}

/// A job without agents at the foot of its ladder, with two samples in flight.
fn stalled() -> (Rig, Duration) {
    let mut config = EngineConfig::new(1, 1, 10);
    config.fetch = 3;
    (at_the_foot(config), Duration::from_secs(10))
}

#[test]
fn what_one_rung_waited_for_in_vain_no_later_one_waits_for_again() {
    let (mut rig, full) = stalled();
    assert_eq!(given(&rig, Rung::Fence), full);
    rig.advance(Duration::from_secs(9));
    answer(&mut rig, Rung::Fence, Reach::EnginesSilent, 2);
    let began = rig.now;
    assert!(
        given(&rig, Rung::Abort) < Duration::from_secs(2),
        "asked, not waited for"
    );
    answer(&mut rig, Rung::Abort, Reach::EnginesSilent, 2);
    rig.advance(given(&rig, Rung::Drain));
    assert!(given(&rig, Rung::SecondAbort) < Duration::from_secs(2));
    for key in rig.generating() {
        assert!(rig.pending.contains(&Command::Cancel { key }));
        rig.end_sample(key, SampleEnd::Aborted { tokens: 0 });
    }
    // Their connections are closed, so that the router has forgotten them.
    answer(&mut rig, Rung::SecondAbort, Reach::All, 0);
    done(&mut rig, &[Rung::Release, Rung::Prove]);
    let sum = summary(&rig);
    assert_eq!(sum.unproven, 2, "nobody has proven their end");
    assert!(
        rig.now.saturating_sub(began) < Duration::from_secs(1),
        "no rung waited"
    );
    rig.write_step();
    assert!(rig.result.expect("decided").success);
}

#[test]
fn an_engine_that_answers_again_gets_its_full_time_back() {
    let (mut rig, full) = stalled();
    answer(&mut rig, Rung::Fence, Reach::EnginesSilent, 2);
    answer(&mut rig, Rung::Abort, Reach::All, 0);
    assert_eq!(given(&rig, Rung::Drain), Duration::from_mins(1));
    rig.advance(Duration::from_mins(1));
    assert_eq!(given(&rig, Rung::SecondAbort), full);
}

#[test]
fn silent_engines_take_no_time_from_agents() {
    let mut rig = at_the_foot(agentic(1));
    answer(&mut rig, Rung::Fence, Reach::EnginesSilent, 2);
    answer(&mut rig, Rung::Abort, Reach::EnginesSilent, 2);
    assert_eq!(given(&rig, Rung::Hook), Duration::from_secs(30));
    rig.answer_rung(Rung::Hook, RungOutcome::Done);
    assert_eq!(given(&rig, Rung::Drain), Duration::from_mins(1));
}

#[test]
fn without_a_router_every_rung_is_climbed_and_none_waits() {
    let mut rig = at_the_foot(agentic(1));
    rig.advance(Duration::from_secs(5));
    let began = rig.now;
    for rung in [Rung::Fence, Rung::Abort, Rung::Hook] {
        answer(&mut rig, rung, Reach::RouterGone, 0);
    }
    rig.advance(given(&rig, Rung::Drain));
    answer(&mut rig, Rung::SecondAbort, Reach::RouterGone, 0);
    rig.advance(given(&rig, Rung::Collect));
    for rung in [Rung::Release, Rung::Prove] {
        answer(&mut rig, rung, Reach::RouterGone, 0);
    }
    assert!(rig.now.saturating_sub(began) < Duration::from_secs(3));
    let climbed: Vec<Rung> = rig.engine.book().rungs.iter().map(|r| r.rung).collect();
    assert_eq!(climbed.len(), 8, "none is skipped: {climbed:?}");
}
