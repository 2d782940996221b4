//! Where outputs end.

use std::sync::Arc;

use rollout_tokenizer::Tokenizer;

use super::*;

fn model() -> Model {
    Model::new(
        0,
        &Replies::default(),
        Arc::new(Tokenizer::builtin().unwrap()),
    )
    .unwrap()
}

fn demands(stops: StopRules) -> Demands {
    Demands {
        stops,
        ..Demands::default()
    }
}

#[test]
fn greedy_replies_repeat_and_sampled_ones_do_not() {
    let model = model();
    let stops = StopRules {
        max_new_tokens: 20,
        ignore_eos: true,
        ..StopRules::default()
    };
    let reply = |temperature| {
        let shaping = Shaping {
            temperature,
            ..Shaping::default()
        };
        let demands = Demands {
            shaping,
            ..demands(stops.clone())
        };
        model
            .reply(&[1, 2], None, &demands)
            .unwrap()
            .tokens(20)
            .to_vec()
    };
    assert_eq!(reply(None), reply(None));
    assert_ne!(reply(Some(1.0)), reply(Some(1.0)));
}

#[test]
fn no_stop_token_comes_before_the_least_length() {
    let model = model();
    let stops = StopRules {
        max_new_tokens: 500,
        min_new_tokens: 100,
        stop_token_ids: (0..500).collect(),
        ..StopRules::default()
    };
    for prompt in 0..50 {
        let output = model
            .reply(&[prompt], None, &demands(stops.clone()))
            .unwrap();
        assert!(output.length() > 100);
        assert!(matches!(output.stop(), Stop::Token(_)));
        assert!(output.tokens(100).iter().all(|token| *token >= 500));
    }
}

#[test]
fn the_length_wins_over_a_stop_at_the_same_token() {
    let model = model();
    let stops = StopRules {
        max_new_tokens: 1,
        stop_token_ids: (0..1024).collect(),
        ..StopRules::default()
    };
    let output = model.reply(&[3], None, &demands(stops)).unwrap();
    assert_eq!((output.length(), output.stop()), (1, &Stop::Length));
}

#[test]
fn a_stop_text_may_lie_across_tokens() {
    let model = model();
    let text = "one two three";
    let ids = model.tokenizer.encode(text).unwrap();
    let forced = ForcedText(Arc::new(move |_| text.to_owned()));
    let stops = StopRules {
        max_new_tokens: 100,
        stop: vec!["wo th".into()],
        ..StopRules::default()
    };
    let demands = Demands {
        forced_text: Some(forced),
        ..demands(stops)
    };
    let output = model.reply(&[3], None, &demands).unwrap();
    assert_eq!(output.stop(), &Stop::Text("wo th".into()));
    assert!(output.length() < ids.len());
}
