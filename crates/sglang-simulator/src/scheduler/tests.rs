//! Whatever is asked in whatever order: nothing is lost, nothing is counted twice, and the memory holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use rollout_tokenizer::Tokenizer;

use super::*;
use crate::replies::{Ends, Intent, Language, Output, Shaping, StopRules};

const KV_TOKENS: usize = 400;

fn limits() -> Limits {
    Limits {
        prefill_tokens_per_second: 1000,
        decode_tokens_per_second: 100,
        slowdown_percent: 5,
        max_running: 4,
        max_queued: 0,
        kv_tokens: KV_TOKENS,
        max_prefill_tokens: 100,
    }
}

struct Writer {
    tokenizer: Tokenizer,
    language: Language,
}

impl Writer {
    fn new() -> Self {
        let tokenizer = Tokenizer::builtin().unwrap();
        let language = Language::new(1, &tokenizer).unwrap();
        Self {
            tokenizer,
            language,
        }
    }

    fn job(&self, key: Key, prompt: &[u32], length: usize, streaming: bool) -> Job {
        let intent = Intent {
            listed: vec![],
            ends: Ends::Never,
            seed: key,
            shaping: Shaping::default(),
            forced: None,
        };
        let rules = StopRules {
            max_new_tokens: length,
            ignore_eos: true,
            ..StopRules::default()
        };
        let output = Output::plan(
            &intent,
            self.language.start(),
            &rules,
            &self.language,
            &self.tokenizer,
        );
        Job {
            key,
            prompt: prompt.into(),
            output,
            streaming,
            cacheable: usize::MAX,
        }
    }
}

/// What a client may do.
#[derive(Debug, Clone)]
enum Action {
    Submit {
        prompt: Vec<u32>,
        length: usize,
        streaming: bool,
    },
    Abort(u64),
    Pause(Pause),
    Resume,
    Flush,
    Version,
    Wait(Nanos),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (vec(0_u32..3, 1..60), 0_usize..120, any::<bool>())
            .prop_map(|(prompt, length, streaming)| Action::Submit { prompt, length, streaming }),
        2 => (0_u64..40).prop_map(Action::Abort),
        1 => prop_oneof![Just(Action::Pause(Pause::InPlace)), Just(Action::Pause(Pause::Retract))],
        2 => Just(Action::Resume),
        1 => Just(Action::Flush),
        1 => Just(Action::Version),
        6 => (0_u64..2_000_000_000).prop_map(Action::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_with_what_it_was_to_have(actions in vec(action(), 1..60)) {
        let writer = Writer::new();
        let mut scheduler = Scheduler::new(limits(), "v0".into());
        let mut now = 0;
        let mut expected = BTreeMap::new();
        let mut progress: BTreeMap<Key, usize> = BTreeMap::new();
        let mut ended = BTreeMap::new();
        let mut events = Vec::new();
        for (step, action) in actions.into_iter().enumerate() {
            match action {
                Action::Submit { prompt, length, streaming } => {
                    let key = expected.len() as Key;
                    expected.insert(key, length);
                    scheduler.submit(writer.job(key, &prompt, length, streaming), now);
                }
                Action::Abort(key) => drop(scheduler.abort(key, now)),
                Action::Pause(mode) => scheduler.pause(mode, now),
                Action::Resume => scheduler.resume(now),
                Action::Flush => drop(scheduler.flush(now)),
                Action::Version => scheduler.set_version(format!("v{step}").into(), now),
                Action::Wait(nanos) => now += nanos,
            }
            events.extend(scheduler.advance(now));
            let (running, _) = scheduler.occupancy();
            prop_assert!(running <= limits().max_running);
            prop_assert!(scheduler.cache.tokens() + scheduler.private_tokens <= KV_TOKENS || running <= 1);
        }
        scheduler.resume(now);
        events.extend(scheduler.advance(now));
        let mut rounds = 0;
        while let Some(next) = scheduler.next_wake() {
            prop_assert!(next > now, "time goes on");
            now = next;
            events.extend(scheduler.advance(now));
            rounds += 1;
            prop_assert!(rounds < 100_000, "it comes to an end");
        }
        prop_assert!(scheduler.is_idle());
        prop_assert_eq!(scheduler.private_tokens, 0);
        prop_assert_eq!(scheduler.cache.protected(), 0);
        for event in events {
            match event {
                Event::Progress { key, generated, .. } => {
                    prop_assert!(!ended.contains_key(&key));
                    let before = progress.insert(key, generated).unwrap_or(0);
                    prop_assert!(generated > before);
                }
                Event::Finished { key, outcome } => {
                    let spans = &outcome.versions;
                    prop_assert!(!spans.is_empty() && spans[0].start == 0);
                    prop_assert!(spans.windows(2).all(|pair| pair[0].start < pair[1].start && pair[0].version != pair[1].version));
                    prop_assert!(progress.get(&key).is_none_or(|seen| *seen <= outcome.generated));
                    if outcome.ending == Ending::Complete {
                        prop_assert_eq!(outcome.generated, expected[&key]);
                    } else {
                        prop_assert!(outcome.generated <= expected[&key]);
                    }
                    prop_assert!(ended.insert(key, outcome.ending).is_none(), "ends once");
                }
            }
        }
        prop_assert_eq!(ended.len(), expected.len());
    }
}

#[test]
fn looking_often_or_rarely_gives_the_same_end() {
    let writer = Writer::new();
    let run = |looks: u64| {
        let mut scheduler = Scheduler::new(limits(), "v".into());
        for key in 0..8 {
            scheduler.submit(
                writer.job(key, &[1, 2, 3, u32::try_from(key).unwrap()], 50, false),
                0,
            );
        }
        let end = 20_000_000_000;
        let mut ends = Vec::new();
        for look in 1..=looks {
            for event in scheduler.advance(end * look / looks) {
                if let Event::Finished { key, outcome } = event {
                    ends.push((key, outcome.finished, outcome.generated));
                }
            }
        }
        ends
    };
    assert_eq!(run(1).len(), 8);
    assert_eq!(run(1), run(7));
    assert_eq!(run(1), run(20_000));
}

#[test]
fn a_shared_prompt_is_computed_once() {
    let writer = Writer::new();
    let mut scheduler = Scheduler::new(limits(), "v".into());
    let prompt: Vec<u32> = (0..80).collect();
    scheduler.submit(writer.job(0, &prompt, 5, false), 0);
    scheduler.submit(writer.job(1, &prompt, 5, false), 1);
    let cached: Vec<usize> = scheduler
        .advance(10_000_000_000)
        .into_iter()
        .filter_map(|event| match event {
            Event::Finished { outcome, .. } => Some(outcome.times.cached),
            Event::Progress { .. } => None,
        })
        .collect();
    assert_eq!(cached, [0, 79]);
}

#[test]
fn a_load_is_as_old_as_fifteen_steps() {
    let writer = Writer::new();
    let mut scheduler = Scheduler::new(limits(), Arc::from("v"));
    scheduler.submit(writer.job(0, &[1], 100, false), 0);
    let after = |steps: u64| 1_000_000 + steps * 10_000_000;
    assert_eq!(
        scheduler.load(after(14)).used_tokens,
        2,
        "published after the prefill"
    );
    assert_eq!(
        scheduler.load(after(16)).used_tokens,
        17,
        "published after fifteen steps"
    );
    assert_eq!(scheduler.load(after(29)).used_tokens, 17);
    assert_eq!(scheduler.load(after(500)).running, 0);
}
