//! Which leaves of a tree become samples, and what each of them trains.

use rollout_session::collect::Picker;
use rollout_session::{CollectOptions, CollectPlan, Collected, Forest, Shape, plan};
use serde_json::{Map, Value, json};

use crate::agent::{assistant, say, session, user};

fn planned(forest: &Forest, options: CollectOptions) -> (CollectPlan, Collected) {
    let plan = plan(forest, options);
    let collected = plan.assemble(forest, &[]);
    for sample in &collected.samples {
        sample.validate().unwrap();
    }
    (plan, collected)
}

fn options(picker: Picker) -> CollectOptions {
    CollectOptions {
        picker,
        ..CollectOptions::default()
    }
}

fn leaves(collected: &Collected) -> Vec<u64> {
    let leaf =
        |sample: &rollout_session::Sample| sample.metadata["leaf"]["node_id"].as_u64().unwrap();
    collected.samples.iter().map(leaf).collect()
}

fn masks(collected: &Collected) -> Vec<Vec<u8>> {
    let samples = collected.samples.iter();
    samples
        .map(|sample| sample.loss_mask.clone().unwrap())
        .collect()
}

/// `u1 a1 u2 { a2 | a2' u3 a3 }`, and a root of its own.
fn branched() -> Forest {
    let mut forest = session(Shape::Tree);
    let begin = [user("u1"), assistant("a1"), user("u2")];
    say(&mut forest, &begin[..1], "a1", 11);
    say(&mut forest, &begin, "a2", 12);
    say(&mut forest, &begin, "a2b", 13);
    let more = [&begin[..], &[assistant("a2b"), user("u3")]].concat();
    say(&mut forest, &more, "a3", 14);
    say(&mut forest, &[user("sub")], "s", 15);
    forest
}

#[test]
fn names_are_read_also_as_dotted_paths() {
    for picker in [Picker::DropRetries, Picker::KeepAll] {
        assert_eq!(picker.to_string().parse(), Ok(picker));
    }
    let dotted = "miles.rollout.session.v2.picker_hub.drop_retries";
    assert_eq!(dotted.parse(), Ok(Picker::DropRetries));
    assert!("mine".parse::<Picker>().is_err());
}

#[test]
fn a_leaf_that_was_answered_again_is_left_out() {
    let (plan, collected) = planned(&branched(), options(Picker::DropRetries));
    assert_eq!(leaves(&collected), [3, 4]);
    assert_eq!(plan.warnings, [""; 0]);
    let leaf = &collected.samples[0].metadata["leaf"];
    assert_eq!(
        *leaf,
        json!({"node_id": 3, "parent": 2, "path_node_ids": [0, 2, 3], "response_id": "r3"})
    );
    let tokens = &collected.samples[0].metadata["accumulated_token_ids"];
    assert_eq!(*tokens, json!(collected.samples[0].tokens));
    assert_eq!(
        collected.session_metadata["tree"]["leaves"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn a_turn_that_leaves_share_is_trained_once() {
    let (_, collected) = planned(&branched(), options(Picker::KeepAll));
    assert_eq!(leaves(&collected), [1, 3, 4]);
    // The first leaf owns what both have; the second trains the rest. Two ids of a prompt lie between answers.
    assert_eq!(
        masks(&collected),
        [vec![1, 0, 0, 1], vec![0, 0, 0, 1, 0, 0, 1], vec![1]]
    );
    let log_probs = collected.samples[1].rollout_log_probs.as_ref().unwrap();
    assert_eq!(log_probs[..], [0.0, 0.0, 0.0, -0.5, 0.0, 0.0, -0.5]);
    let trained: usize = collected
        .samples
        .iter()
        .map(rollout_session::Sample::trained_tokens)
        .sum();
    assert_eq!(trained, 5);
}

#[test]
fn roots_and_branches_that_were_left_deeper_down_stay() {
    let mut forest = session(Shape::Tree);
    say(&mut forest, &[user("u1")], "a1", 1);
    say(&mut forest, &[user("u1")], "a1b", 2);
    let deep = [user("u1"), assistant("a1b"), user("u2")];
    say(&mut forest, &deep, "a2", 3);
    let deeper = [&deep[..], &[assistant("a2"), user("u3")]].concat();
    say(&mut forest, &deeper, "a3", 4);
    say(&mut forest, &deep, "a2b", 5);
    let (plan, collected) = planned(&forest, options(Picker::DropRetries));
    // The leaf 3 is below 2, which was answered again as 4; it is not a retry itself. Longest first.
    assert_eq!(leaves(&collected), [3, 4, 0]);
    assert_eq!(plan.warnings, [""; 0]);
}

#[test]
fn an_agents_reward_is_every_samples() {
    let metadata: Map<String, Value> =
        json!({"reward": 0.5, "leaf": "mine", "accumulated_token_ids": [1],
        "tito_session_mismatch": ["mine"], "note": "n"})
        .as_object()
        .unwrap()
        .clone();
    let (_, collected) = planned(
        &branched(),
        CollectOptions {
            metadata,
            ..CollectOptions::default()
        },
    );
    assert_eq!(collected.samples.len(), 2);
    for sample in &collected.samples {
        assert_eq!(sample.reward, json!(0.5));
        assert_eq!(sample.metadata["note"], "n");
        assert!(sample.metadata["leaf"].is_object());
        assert_ne!(sample.metadata["accumulated_token_ids"], json!([1]));
        assert!(!sample.metadata.contains_key("tito_session_mismatch"));
    }
}

#[test]
fn a_line_is_one_sample_of_the_conversation_as_it_is() {
    let mut forest = session(Shape::Line);
    let begin = [user("u1"), assistant("a1"), user("u2")];
    say(&mut forest, &begin[..1], "a1", 11);
    say(&mut forest, &begin, "a2", 12);
    say(&mut forest, &begin, "a2b", 13);
    let wants_messages = CollectOptions {
        messages: true,
        ..CollectOptions::default()
    };
    let (_, collected) = planned(&forest, wants_messages);
    let [sample] = &collected.samples[..] else {
        panic!("{collected:?}")
    };
    assert_eq!(sample.tokens.last(), Some(&13));
    assert_eq!(sample.loss_mask.as_deref(), Some(&[1, 0, 0, 1][..]));
    let turns: Vec<_> = sample.metadata["lifecycle"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["turn"].clone())
        .collect();
    assert_eq!(turns, [1, 2]);
    let messages = [&begin[..], &[assistant("a2b")]].concat();
    assert_eq!(sample.metadata["messages"], json!(messages));
    assert_eq!(collected.session_metadata["superseded_turns"], 1);
    assert!(!collected.session_metadata.contains_key("tree"));
}

#[test]
fn nothing_is_left_of_a_tree_that_the_budget_does_not_fit() {
    let none = CollectOptions {
        max_seq_len: Some(1),
        ..CollectOptions::default()
    };
    let (_, collected) = planned(&branched(), none);
    assert_eq!(
        collected.empty_reason,
        Some(rollout_session::EmptyReason::AllTruncated)
    );
}
