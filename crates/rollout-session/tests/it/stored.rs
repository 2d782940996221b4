//! Turns as bytes, and bytes that are none.

use proptest::prelude::*;
use rollout_session::forest::StoredError;
use rollout_session::{
    ChatReply, FinishReason, Forest, Generation, ReplayPayload, Shape, TurnContext,
};
use serde_json::json;

use crate::agent::{assistant, say, session, user};

fn stored(forest: &Forest) -> Vec<Vec<u8>> {
    let turns = forest.turns();
    turns
        .map(|(id, _)| forest.store(id).unwrap().unwrap())
        .collect()
}

/// Two turns with everything that a turn can have.
fn rich() -> Forest {
    let mut forest = Forest::new(1);
    let body = json!({"id": "r", "choices": [{"message": {"content": "hé"}, "prompt_token_ids": [1, 2],
        "finish_reason": "content_filter", "meta_info": {"weight_version": "7", "e2e_latency": 0.5,
            "spec_verify_ct": 2, "output_token_logprobs": [[-0.5, 7, "h"], [-0.0, 8, "é"]], "completion_tokens": 2,
            "cached_tokens": 1, "routed_experts": "AQAAAA==", "indexer_topk": "?", "indexer_topk_num_layers": 4}}]})
    .to_string();
    let reply = ChatReply::parse(body.as_bytes(), None, None).unwrap();
    let context = TurnContext {
        messages: Some(1),
        request: br#"{"messages":[{}]}"#,
        experts_start: Some(3),
        response: reply.record_body(body.as_bytes()),
        requested_at: 1.25,
        answered_at: 2.5,
        ..TurnContext::default()
    };
    forest.commit(0, reply.generation, context.clone()).unwrap();
    let next = Generation {
        prompt_ids: vec![1, 2, 7, 9],
        output_ids: vec![3],
        log_probs: vec![-1.0],
        finish: Some(FinishReason::Length),
        routed_experts: Some(ReplayPayload::Rows(vec![1, 0, 0, 0, 2, 0, 0, 0])),
        ..Generation::default()
    };
    let context = TurnContext {
        request: br#"{"messages":[{},{}]}"#,
        messages: Some(3),
        sent_ids: true,
        ..context
    };
    forest.commit(0, next, context).unwrap();
    forest
}

#[test]
fn a_turn_comes_back_as_it_was() {
    let forest = rich();
    let bytes = stored(&forest);
    let mut again = Forest::new(1);
    for turn in &bytes {
        again.restore(turn).unwrap();
    }
    for (id, turn) in forest.turns() {
        let other = again.turn(id).unwrap();
        assert_eq!(again.ids(id), forest.ids(id));
        assert_eq!(again.record_view(id), forest.record_view(id));
        assert_eq!(other.status(), turn.status());
        assert_eq!(other.pieces(), turn.pieces());
        assert_eq!(other.times(), turn.times());
        assert_eq!(
            other.log_probs()[0].to_bits(),
            turn.log_probs()[0].to_bits()
        );
    }
    assert_eq!(again.head(), forest.head());
    assert_eq!(stored(&again)[1], bytes[1]);
    assert_eq!(
        forest.store(forest.head().unwrap()).unwrap().as_ref(),
        bytes.get(1)
    );
}

#[test]
fn a_long_conversation_is_written_once() {
    let mut forest = session(Shape::Line);
    let mut messages = vec![user(&"x".repeat(10_000))];
    say(&mut forest, &messages, "a", 1);
    for _ in 0..20 {
        messages.extend([assistant("a"), user("next")]);
        say(&mut forest, &messages, "a", 1);
    }
    let later: usize = stored(&forest)[1..].iter().map(Vec::len).sum();
    assert!(later / 20 < 400, "{later}");
}

#[test]
fn a_turn_without_its_parent_or_of_another_version_is_refused() {
    let bytes = stored(&rich());
    let mut forest = Forest::new(1);
    let error = forest.restore(&bytes[1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stored turn does not fit: its parent is missing"
    );
    assert!(forest.restore(&[]).is_err());
    let mut newer = bytes[0].clone();
    newer[0] = 9;
    assert_eq!(forest.restore(&newer), Err(StoredError::Version(9)));
    assert!(forest.is_empty());
    forest.restore(&bytes[0]).unwrap();
}

proptest! {
    #[test]
    fn damaged_bytes_are_refused_or_at_least_harm_nobody(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        turn in 0usize..2,
    ) {
        let good = stored(&rich());
        let mut bad = good[turn].clone();
        for (at, value) in changes {
            let at = at.index(bad.len());
            bad[at] = value;
        }
        if let Some(cut) = cut {
            bad.truncate(cut.index(bad.len()));
        }
        let mut forest = Forest::new(1);
        if turn == 1 {
            forest.restore(&good[0]).unwrap();
        }
        let before = forest.len();
        if let Ok(id) = forest.restore(&bad) {
            // What cannot be told from a turn can be looked at like one.
            forest.record_view(id);
            let collected = rollout_session::plan(&forest, rollout_session::CollectOptions::default()).assemble(&forest, &[]);
            prop_assert!(collected.samples.len() <= 1);
        } else {
            prop_assert_eq!(forest.len(), before);
        }
    }
}
