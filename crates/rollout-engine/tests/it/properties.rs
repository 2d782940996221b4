//! Whatever happens, in whatever order, with crashes at any record: the ledger sums up and the job ends.

use std::time::Duration;

use proptest::prelude::*;
use rollout_engine::{
    Command, EngineConfig, Event, Granularity, LadderConfig, Reach, Reason, Rung, RungOutcome,
    RungReport, SampleEnd, ScoreEnd, Scoring, SlotStart, StopCause, Surplus, Verdict,
};

use crate::rig::{Rig, replay};

/// A stream of choices that a failing case can be replayed from.
struct Dice {
    state: u64,
}

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % sides.max(1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.roll(100) < chance
    }
}

#[derive(Debug, Clone)]
struct Weather {
    seed: u64,
    infra: u64,
    reject: u64,
    bad_row: u64,
    drop: u64,
    reward_fails: u64,
    rung_fails: u64,
    crash: u64,
    stop: u64,
}

fn weather() -> impl Strategy<Value = Weather> {
    (
        any::<u64>(),
        prop_oneof![Just(0u64), Just(5), Just(40), Just(100)],
        prop_oneof![Just(0u64), Just(2), Just(100)],
        prop_oneof![Just(0u64), Just(3), Just(100)],
        prop_oneof![Just(0u64), Just(50), Just(100)],
        prop_oneof![Just(0u64), Just(5), Just(100)],
        prop_oneof![Just(0u64), Just(30), Just(100)],
        prop_oneof![Just(0u64), Just(1)],
        prop_oneof![3 => Just(0u64), 1 => Just(1)],
    )
        .prop_map(
            |(seed, infra, reject, bad_row, drop, reward_fails, rung_fails, crash, stop)| Weather {
                seed,
                infra,
                reject,
                bad_row,
                drop,
                reward_fails,
                rung_fails,
                crash,
                stop,
            },
        )
}

fn config() -> impl Strategy<Value = EngineConfig> {
    (
        1u32..4,
        1u32..6,
        1u32..4,
        0u32..5,
        any::<(bool, bool, bool)>(),
        prop_oneof![
            Just(Scoring::None),
            Just(Scoring::Sample),
            Just(Scoring::Group)
        ],
        1u32..12,
        1u64..20,
    )
        .prop_map(
            |(steps, target, n, extra, (by_sample, partial, write), scoring, limit, rows)| {
                let mut config = EngineConfig::new(target, n, rows);
                config.steps = steps;
                config.fetch = if extra == 0 { 1 } else { target + extra };
                config.max_in_flight = limit;
                config.partial = partial;
                config.scoring = scoring;
                config.limits.consecutive_filtered = 64;
                config.ladder = LadderConfig {
                    hook: by_sample.then_some(Duration::from_secs(5)),
                    ..LadderConfig::default()
                };
                if by_sample {
                    config.granularity = Granularity::Sample;
                }
                if write {
                    config.surplus = Surplus::Write;
                }
                config
            },
        )
}

fn reward(dice: &mut Dice, weather: &Weather) -> ScoreEnd {
    if !dice.percent(weather.reward_fails) {
        return ScoreEnd::Scored;
    }
    if dice.percent(75) {
        return ScoreEnd::Failed;
    }
    ScoreEnd::Unusable {
        problem: "no such function".into(),
    }
}

fn sample_end(dice: &mut Dice, weather: &Weather, tearing_down: bool) -> SampleEnd {
    if tearing_down && dice.percent(50) {
        return SampleEnd::Aborted {
            tokens: dice.roll(20),
        };
    }
    if dice.percent(weather.infra / 2) {
        return SampleEnd::Unserved {
            cause: "unavailable".into(),
        };
    }
    if dice.percent(weather.infra) {
        return SampleEnd::Infra {
            cause: "engine_gone".into(),
        };
    }
    if dice.percent(weather.infra / 4) {
        return SampleEnd::SharedDeath {
            cause: "shared_process_died".into(),
        };
    }
    if dice.percent(weather.infra / 8) {
        return SampleEnd::OutOfMemory {
            cause: "out_of_memory".into(),
        };
    }
    if dice.percent(weather.infra / 8) {
        return SampleEnd::Setup {
            cause: "agent_not_loaded".into(),
        };
    }
    if dice.percent(weather.infra / 8) {
        return SampleEnd::Unusable {
            cause: "agent_not_loaded".into(),
            problem: "SyntaxError".into(),
        };
    }
    if dice.percent(weather.reject) {
        return SampleEnd::Rejected {
            reason: "refused".into(),
        };
    }
    SampleEnd::Finished {
        scorable: dice.percent(90),
        tokens: dice.roll(100),
    }
}

fn slots(dice: &mut Dice, n: u32) -> Vec<SlotStart> {
    (0..n)
        .map(|_| match dice.roll(4) {
            0 => SlotStart::Finished { scored: true },
            1 => SlotStart::Finished { scored: false },
            2 => SlotStart::Resume,
            _ => SlotStart::Generate,
        })
        .collect()
}

/// Answers one pending command, any of them.
fn answer(rig: &mut Rig, dice: &mut Dice, weather: &Weather) {
    let at = usize::try_from(dice.roll(rig.pending.len() as u64)).unwrap();
    let Some(command) = rig.pending.remove(at) else {
        return;
    };
    let tearing_down = rig.engine.progress().tearing_down;
    match command {
        Command::Load { take, .. } => {
            if dice.percent(weather.bad_row) {
                rig.send(Event::PromptRefused { take });
            } else {
                let n = rig.engine.config().samples_per_prompt;
                let open = rig.engine.book().open.get(&take).copied();
                let slots = match open {
                    Some(open) if open.samples => slots(dice, n),
                    _ => Vec::new(),
                };
                rig.send(Event::PromptReady { take, slots });
            }
        }
        Command::Generate { key, .. } => {
            let end = sample_end(dice, weather, tearing_down);
            rig.send(Event::SampleEnded { key, end });
        }
        Command::Score { take, slot } => {
            let end = reward(dice, weather);
            rig.send(Event::SampleScored { take, slot, end });
        }
        Command::ScoreGroup { take } => {
            let end = reward(dice, weather);
            rig.send(Event::GroupScored { take, end });
        }
        Command::Filter { take } => {
            let verdict = if dice.percent(weather.drop) {
                Verdict::Drop {
                    reason: "dropped".into(),
                }
            } else {
                Verdict::Keep
            };
            rig.send(Event::Filtered { take, verdict });
        }
        Command::Climb { rung, .. } => match rung {
            Rung::Drain | Rung::Collect => rig.advance(Duration::from_secs(dice.roll(90))),
            _ if dice.percent(weather.rung_fails) => {
                // Silent: the ladder itself has to go on.
                rig.advance(Duration::from_secs(40));
            }
            _ => {
                let mut report = RungReport::new(rung, RungOutcome::Done);
                report.reach = match dice.roll(4) {
                    0 => Reach::EnginesSilent,
                    1 => Reach::RouterGone,
                    _ => Reach::All,
                };
                rig.send(Event::RungEnded { rung, report });
            }
        },
        Command::WriteStep { .. } => rig.send(Event::StepWritten),
        Command::Cancel { .. } | Command::CancelScoring { .. } | Command::Reopen { .. } => {}
        Command::Write(_) | Command::Settle { .. } | Command::Finish(_) => unreachable!(),
    }
}

fn run(config: &EngineConfig, weather: &Weather) -> Result<(), TestCaseError> {
    let mut dice = Dice {
        state: weather.seed,
    };
    let mut rig = Rig::start(config.clone());
    let mut crashes = 0;
    for _ in 0..60_000 {
        if let Some(result) = &rig.result {
            let book = replay(&rig.records);
            prop_assert_eq!(&book, rig.engine.book(), "the records rebuild the book");
            prop_assert!(book.open.is_empty(), "every take ended: {:?}", book.open);
            prop_assert_eq!(book.total().taken, book.total().ended());
            if result.reason == Reason::TargetReached {
                let wanted = u64::from(config.steps) * u64::from(config.target);
                prop_assert_eq!(book.total().kept, wanted);
            }
            return Ok(());
        }
        if crashes < 20 && weather.crash > 0 && dice.roll(200) == 0 {
            // The last records never reached the disk.
            let lost = usize::try_from(dice.roll(4))
                .unwrap()
                .min(rig.records.len());
            rig.records.truncate(rig.records.len() - lost);
            rig = Rig::resume(config.clone(), std::mem::take(&mut rig.records));
            crashes += 1;
            continue;
        }
        if weather.stop > 0 && dice.roll(500) == 0 {
            rig.send(Event::Stop(StopCause::Deadline));
            continue;
        }
        if rig.pending.is_empty() {
            let due = rig.engine.next_wakeup();
            prop_assert!(due.is_some(), "nothing pending and nothing due");
            let now = rig.now;
            rig.advance(due.unwrap().saturating_sub(now) + Duration::from_millis(1));
        } else {
            answer(&mut rig, &mut dice, weather);
        }
    }
    Err(TestCaseError::fail(format!(
        "does not end: {:?}",
        rig.engine.progress()
    )))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_run_ends_and_every_take_ends_once(config in config(), weather in weather()) {
        run(&config, &weather)?;
    }
}
