//! Vectors that Miles's session server answered (tokenizer-free ones).

use rollout_session::{CollectOptions, EmptyReason, Forest, SampleStatus, codec, plan};

use crate::support::{collect, generation, record, turn};

fn two_turns() -> Forest {
    let mut forest = Forest::new(0);
    record(
        &mut forest,
        1,
        generation(&[1, 2, 3], &[(10, -0.125), (11, -0.25)]),
    );
    record(
        &mut forest,
        3,
        generation(&[1, 2, 3, 10, 11, 20, 21], &[(30, -0.5), (31, -1.0)]),
    );
    forest
}

#[test]
fn two_turns_merge_with_the_gap_untrained() {
    let collected = collect(&two_turns(), None, false);
    let [sample] = &collected.samples[..] else {
        panic!("{collected:?}")
    };
    assert_eq!(sample.tokens, [1, 2, 3, 10, 11, 20, 21, 30, 31]);
    assert_eq!(sample.response_length, 6);
    assert_eq!(sample.loss_mask.as_deref(), Some(&[1, 1, 0, 0, 1, 1][..]));
    assert_eq!(
        sample.rollout_log_probs.as_deref(),
        Some(&[-0.125, -0.25, 0.0, 0.0, -0.5, -1.0][..])
    );
    assert_eq!(sample.status, SampleStatus::Completed);
    assert_eq!(collected.empty_reason, None);
    assert_eq!(
        sample.metadata["lifecycle"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn the_budget_cuts_the_last_token() {
    let collected = collect(&two_turns(), Some(8), false);
    let sample = &collected.samples[0];
    assert_eq!(sample.tokens, [1, 2, 3, 10, 11, 20, 21, 30]);
    assert_eq!(sample.loss_mask.as_deref(), Some(&[1, 1, 0, 0, 1][..]));
    assert_eq!(sample.status, SampleStatus::Truncated);
}

#[test]
fn the_budget_drops_the_second_turn() {
    let collected = collect(&two_turns(), Some(5), false);
    let sample = &collected.samples[0];
    assert_eq!(sample.tokens, [1, 2, 3, 10, 11]);
    assert_eq!(sample.status, SampleStatus::Completed);
    assert!(sample.metadata["lifecycle"].is_object());
}

#[test]
fn the_budget_leaves_nothing() {
    let collected = collect(&two_turns(), Some(2), false);
    assert_eq!(collected.samples, []);
    assert_eq!(collected.empty_reason, Some(EmptyReason::AllTruncated));
}

#[test]
fn stop_tokens_that_the_template_leaves_out_are_trimmed() {
    const STOP: u32 = 99;
    let mut forest = Forest::new(1);
    let first = [1, 2, 3];
    let second = [1, 2, 3, 10, 4, 5, 6];
    let third = [1, 2, 3, 10, 4, 5, 6, 20, 7, 8, 9];
    turn(&mut forest, 1, &first, &[10, STOP]);
    turn(&mut forest, 3, &second, &[20, STOP]);
    turn(&mut forest, 5, &third, &[30, STOP]);
    let collected = collect(&forest, None, false);
    let sample = &collected.samples[0];
    assert_eq!(
        sample.tokens,
        [1, 2, 3, 10, 4, 5, 6, 20, 7, 8, 9, 30, i64::from(STOP)]
    );
    assert_eq!(
        sample.loss_mask.as_deref(),
        Some(&[1, 0, 0, 0, 1, 0, 0, 0, 1, 1][..])
    );
    assert_eq!(collected.session_metadata["max_trim_tokens"], 1);
}

#[test]
fn a_session_without_records_says_so() {
    let forest = Forest::new(0);
    let mut collected = plan(&forest, CollectOptions::default()).assemble(&forest, &[]);
    collected
        .session_metadata
        .retain(|key, _| matches!(key.as_str(), "accumulated_token_ids" | "max_trim_tokens"));
    let buffer = codec::encode(&collected).unwrap();
    let meta = br#"{"samples":[],"session_metadata":{"accumulated_token_ids":[],"max_trim_tokens":0},"empty_reason":"no_records"}"#;
    assert_eq!(meta.len(), 110);
    assert!(buffer.ends_with(meta));
    let tensors = safetensors::SafeTensors::deserialize(&buffer).unwrap();
    assert_eq!(tensors.names(), ["_samples_meta"]);
    assert_eq!(codec::decode(&buffer).unwrap(), collected);
}
