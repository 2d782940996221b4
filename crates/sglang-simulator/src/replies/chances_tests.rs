//! The distribution of tokens under every parameter: what is drawn is as likely as what is said to be.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use rollout_tokenizer::Tokenizer;

use super::chances::{Chances, Shaping, Spoken};
use super::language::Language;
use crate::numbers;

fn language() -> Language {
    Language::new(7, &Tokenizer::builtin().unwrap()).unwrap()
}

fn spoken(tokens: &[u32], shaping: &Shaping) -> Spoken {
    let mut spoken = Spoken::default();
    for token in tokens {
        spoken.push(*token, shaping);
    }
    spoken
}

/// Calls `look` with the chances after some tokens.
fn after(language: &Language, tokens: &[u32], shaping: &Shaping, look: impl FnOnce(&Chances<'_>)) {
    let law = shaping.law(language);
    let context = language.start().then_all(tokens);
    let spoken = spoken(tokens, shaping);
    look(&Chances::new(language, &law, context, shaping, &spoken));
}

fn shares(chances: &Chances<'_>, shaping: &Shaping, draws: u32) -> HashMap<u32, f64> {
    let mut counts: HashMap<u32, f64> = HashMap::new();
    for draw in 0..draws {
        let unit = (f64::from(draw) + 0.5) / f64::from(draws);
        *counts.entry(chances.draw(unit, shaping)).or_default() += 1.0 / f64::from(draws);
    }
    counts
}

/// Tokens that the language says after nothing, likeliest first.
fn likely(language: &Language, count: usize) -> Vec<u32> {
    (0..count)
        .map(|rank| language.token_at(language.start(), rank))
        .collect()
}

#[test]
fn draws_follow_the_probabilities() {
    let language = language();
    let favourite = likely(&language, 1)[0];
    let cases = [
        Shaping::default(),
        Shaping {
            temperature: Some(0.5),
            ..Shaping::default()
        },
        Shaping {
            frequency_penalty: 1.5,
            presence_penalty: 0.5,
            repetition_penalty: 1.3,
            ..Shaping::default()
        },
        Shaping {
            frequency_penalty: -2.0,
            ..Shaping::default()
        },
        Shaping {
            logit_bias: Arc::from([(favourite, 2.0), (1, 37.0), (3, -100.0)]),
            ..Shaping::default()
        },
    ];
    for shaping in cases {
        after(&language, &[9, 9, 12, favourite], &shaping, |chances| {
            let drawn = shares(chances, &shaping, 20_000);
            for (log, token) in chances.top(5) {
                let said = f64::from(log).exp();
                let share = drawn.get(&token).copied().unwrap_or(0.0);
                assert!(
                    (share - said).abs() < 0.001,
                    "{token}: {share} is not {said} with {shaping:?}"
                );
            }
        });
    }
}

#[test]
fn penalties_push_what_was_said_back() {
    let language = language();
    let plain = Shaping::default();
    let said = [5, 5, 5, 8];
    let value = |shaping: &Shaping, token: u32| {
        let mut value = 0.0;
        after(&language, &said, shaping, |chances| {
            value = chances.log_probability(token);
        });
        value
    };
    // differences of log-probabilities of two tokens do not depend on the sum of all
    let gap = |shaping: &Shaping, token: u32| {
        f64::from(value(shaping, token) - value(shaping, 700))
            - f64::from(value(&plain, token) - value(&plain, 700))
    };
    let frequency = Shaping {
        frequency_penalty: 0.5,
        ..plain.clone()
    };
    assert!((gap(&frequency, 5) + 1.5).abs() < 1e-4 && (gap(&frequency, 8) + 0.5).abs() < 1e-4);
    let presence = Shaping {
        presence_penalty: 0.5,
        ..plain.clone()
    };
    assert!((gap(&presence, 5) + 0.5).abs() < 1e-4 && (gap(&presence, 8) + 0.5).abs() < 1e-4);
    let repetition = Shaping {
        repetition_penalty: 1.5,
        ..plain.clone()
    };
    assert!(gap(&repetition, 5) < -0.1 && gap(&repetition, 9).abs() < 1e-4);
    let colder = Shaping {
        temperature: Some(0.5),
        frequency_penalty: 0.5,
        ..plain.clone()
    };
    let cold = Shaping {
        temperature: Some(0.5),
        ..plain.clone()
    };
    let colder =
        f64::from(value(&colder, 5) - value(&colder, 700) - value(&cold, 5) + value(&cold, 700));
    assert!(
        (colder + 3.0).abs() < 1e-4,
        "{colder} is not 1.5 over the temperature"
    );
}

#[test]
fn cuts_limit_what_is_drawn_and_not_what_is_said() {
    let language = language();
    let penalty = 0.3;
    for shaping in [
        Shaping {
            top_k: 5,
            ..Shaping::default()
        },
        Shaping {
            top_p: 0.5,
            ..Shaping::default()
        },
        Shaping {
            min_p: 0.2,
            ..Shaping::default()
        },
        Shaping {
            top_k: 5,
            frequency_penalty: penalty,
            ..Shaping::default()
        },
        Shaping {
            top_p: 0.5,
            presence_penalty: penalty,
            ..Shaping::default()
        },
        Shaping {
            min_p: 0.2,
            logit_bias: Arc::from([(6, 3.0)]),
            ..Shaping::default()
        },
    ] {
        let uncut = Shaping {
            top_k: usize::MAX,
            top_p: 1.0,
            min_p: 0.0,
            ..shaping.clone()
        };
        after(&language, &[4, 5, 6], &shaping, |chances| {
            let drawn = shares(chances, &shaping, 5_000);
            let ranked: Vec<u32> = chances
                .ranked()
                .map(|(_, token)| token)
                .take(drawn.len())
                .collect();
            assert!(
                ranked.iter().all(|token| drawn.contains_key(token)),
                "{shaping:?} drew {drawn:?}"
            );
            let said = |token: u32| f64::from(chances.log_probability(token)).exp();
            let kept: f64 = ranked.iter().map(|token| said(*token)).sum();
            let last = said(ranked[ranked.len() - 1]);
            let next = chances
                .ranked()
                .nth(ranked.len())
                .map(|(_, token)| said(token))
                .unwrap();
            let most = said(ranked[0]);
            assert!(ranked.len() <= shaping.top_k);
            assert!(kept - last <= shaping.top_p && last >= shaping.min_p * most * 0.999);
            assert!(
                ranked.len() == shaping.top_k
                    || kept > shaping.top_p
                    || next < shaping.min_p * most,
                "{shaping:?} cut too early"
            );
            after(&language, &[4, 5, 6], &uncut, |whole| {
                assert_eq!(chances.top(10), whole.top(10));
            });
        });
    }
}

#[test]
fn a_bias_forces_and_forbids() {
    let language = language();
    let special = language.never_said().next().unwrap();
    let favourites = likely(&language, 3);
    for forced in [special, favourites[2], 900] {
        let shaping = Shaping {
            logit_bias: Arc::from([(forced, 100.0)]),
            ..Shaping::default()
        };
        after(&language, &[], &shaping, |chances| {
            assert_eq!(chances.draw(0.999, &shaping), forced);
            assert_eq!(chances.top(1), [(0.0, forced)]);
            assert!(chances.log_probability(forced).is_sign_positive());
        });
    }
    let shaping = Shaping {
        logit_bias: Arc::from([(favourites[0], -100.0)]),
        ..Shaping::default()
    };
    after(&language, &[], &shaping, |chances| {
        assert!(!shares(chances, &shaping, 10_000).contains_key(&favourites[0]));
        assert_eq!(
            chances.ranked().next().map(|(_, token)| token),
            Some(favourites[1])
        );
    });
}

#[test]
fn end_tokens_are_withheld_up_to_a_position() {
    let language = language();
    let favourite = likely(&language, 1)[0];
    let shaping = Shaping {
        withheld: Arc::from([favourite]),
        withheld_until: 1,
        ..Shaping::default()
    };
    after(&language, &[], &shaping, |chances| {
        assert!(chances.log_probability(favourite).is_infinite());
        assert!(!shares(chances, &shaping, 10_000).contains_key(&favourite));
    });
    after(&language, &[3], &shaping, |chances| {
        assert!(chances.log_probability(favourite).is_finite());
    });
}

#[test]
fn a_low_temperature_loses_nothing_beside_a_penalized_favourite() {
    let language = language();
    let context = language.start();
    let favourites = likely(&language, 2);
    let shaping = Shaping {
        temperature: Some(0.01),
        logit_bias: Arc::from([(favourites[0], -2.0)]),
        ..Shaping::default()
    };
    let law = shaping.law(&language);
    let chances = Chances::new(&language, &law, context, &shaping, &Spoken::default());
    assert_eq!(chances.draw(0.5, &shaping), favourites[1]);
    assert!(chances.log_probability(favourites[1]) > -1e-3);
}

fn shapings() -> impl Strategy<Value = Shaping> {
    let cuts = (1_usize..2000, 0.01_f64..=1.0, 0.0_f64..=1.0);
    let penalties = (-2.0_f64..=2.0, -2.0_f64..=2.0, 0.05_f64..=2.0);
    let biases = prop::collection::vec((0_u32..1100, -120.0_f64..120.0), 0..4);
    let withheld = prop::collection::vec(0_u32..1100, 0..3);
    (
        prop::option::of(0.01_f64..4.0),
        cuts,
        penalties,
        biases,
        withheld,
    )
        .prop_map(
            |(
                temperature,
                (top_k, top_p, min_p),
                (frequency, presence, repetition),
                biases,
                withheld,
            )| Shaping {
                temperature,
                top_k,
                top_p,
                min_p,
                frequency_penalty: frequency,
                presence_penalty: presence,
                repetition_penalty: repetition,
                logit_bias: biases.into(),
                withheld: withheld.into(),
                withheld_until: 2,
            },
        )
}

proptest! {
    #[test]
    fn probabilities_sum_to_one_and_draws_are_possible(
        shaping in shapings(), tokens in prop::collection::vec(0_u32..1100, 0..6), seed in any::<u64>(),
    ) {
        let language = language();
        after(&language, &tokens, &shaping, |chances| {
            let sum: f64 = chances.ranked().map(|(_, token)| f64::from(chances.log_probability(token)).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-3, "{sum} with {shaping:?}");
            let order: Vec<f64> = chances.ranked().map(|(weight, _)| weight).collect();
            assert!(order.windows(2).all(|pair| pair[0] >= pair[1]));
            let drawn = chances.draw(numbers::unit(seed), &shaping);
            assert!(tokens.len() >= shaping.withheld_until || !shaping.withheld.contains(&drawn));
        });
    }
}
