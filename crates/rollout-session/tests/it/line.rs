//! Which turns make samples when a conversation does not just go on.

use serde_json::json;

use crate::support::{collect, join, turn};
use rollout_session::{FinishReason, Forest, SampleStatus};

fn tokens(collected: &rollout_session::Collected) -> Vec<Vec<i64>> {
    let samples = collected.samples.iter();
    samples.map(|sample| sample.tokens.clone()).collect()
}

#[test]
fn a_template_that_strips_reasoning_gives_two_samples_and_counts_the_drift() {
    let mut forest = Forest::new(0);
    // <think> 50 51 </think> answer 52
    turn(&mut forest, 1, &[1, 2, 3], &[50, 51, 52]);
    turn(&mut forest, 3, &[1, 2, 3, 52, 4, 5], &[60, 61]);
    let collected = collect(&forest, None, true);
    assert_eq!(
        tokens(&collected),
        [vec![1, 2, 3, 50, 51, 52], vec![1, 2, 3, 52, 4, 5, 60, 61]]
    );
    assert_eq!(collected.samples[1].loss_mask.as_deref(), Some(&[1, 1][..]));
    assert_eq!(
        collected.session_metadata["breaks"],
        json!([{"turn": 2, "shared": 3, "expected": 6}])
    );
    let first_only = collect(&forest, None, false);
    assert_eq!(tokens(&first_only), [vec![1, 2, 3, 50, 51, 52]]);
    assert_eq!(
        first_only.session_metadata["breaks"],
        collected.session_metadata["breaks"]
    );
}

#[test]
fn drift_after_several_turns_is_no_retry_of_the_turn_before() {
    let mut forest = Forest::new(0);
    turn(&mut forest, 1, &[1], &[10]);
    turn(&mut forest, 3, &[1, 10, 2], &[50, 20]);
    // The reasoning token 50 of the second turn is gone; the first turn is intact.
    turn(&mut forest, 5, &[1, 10, 2, 20, 3], &[30]);
    let collected = collect(&forest, None, true);
    assert_eq!(
        tokens(&collected),
        [vec![1, 10, 2, 50, 20], vec![1, 10, 2, 20, 3, 30]]
    );
    assert_eq!(collected.session_metadata["superseded_turns"], 0);
}

#[test]
fn a_retry_supersedes_the_turn_that_was_not_continued() {
    let mut forest = Forest::new(0);
    turn(&mut forest, 1, &[1], &[10]);
    turn(&mut forest, 3, &[1, 10, 2], &[20]);
    turn(&mut forest, 3, &[1, 10, 2], &[21]);
    turn(&mut forest, 5, &[1, 10, 2, 21, 3], &[30]);
    for split in [false, true] {
        let collected = collect(&forest, None, split);
        assert_eq!(tokens(&collected), [vec![1, 10, 2, 21, 3, 30]]);
        assert_eq!(collected.session_metadata["superseded_turns"], 1);
    }
}

#[test]
fn a_retry_with_another_tool_result_supersedes_too() {
    let mut forest = Forest::new(0);
    turn(&mut forest, 1, &[1], &[10]);
    turn(&mut forest, 3, &[1, 10, 2], &[20]);
    turn(&mut forest, 3, &[1, 10, 9], &[25]);
    assert_eq!(tokens(&collect(&forest, None, true)), [vec![1, 10, 9, 25]]);
}

#[test]
fn of_several_tries_the_one_that_went_on_is_used() {
    let mut forest = Forest::new(0);
    let first = turn(&mut forest, 1, &[1], &[10]);
    turn(&mut forest, 1, &[1], &[11]);
    turn(&mut forest, 1, &[1], &[12]);
    turn(&mut forest, 3, &[1, 10, 2], &[20]);
    assert_eq!(first.index(), 0);
    let collected = collect(&forest, None, true);
    assert_eq!(tokens(&collected), [vec![1, 10, 2, 20]]);
    assert_eq!(collected.session_metadata["superseded_turns"], 2);
}

#[test]
fn a_sub_agent_has_a_sample_of_its_own_and_the_main_line_goes_on() {
    let mut forest = Forest::new(0);
    turn(&mut forest, 2, &[1, 2], &[10]);
    turn(&mut forest, 4, &[1, 2, 10, 3], &[20]);
    turn(&mut forest, 2, &[7, 8], &[70]);
    turn(&mut forest, 6, &[1, 2, 10, 3, 20, 4], &[30]);
    turn(&mut forest, 4, &[7, 8, 70, 9], &[80]);
    let collected = collect(&forest, None, true);
    assert_eq!(
        tokens(&collected),
        [vec![1, 2, 10, 3, 20, 4, 30], vec![7, 8, 70, 9, 80]]
    );
    assert_eq!(collected.session_metadata["superseded_turns"], 0);
}

#[test]
fn compaction_begins_a_new_sample() {
    let mut forest = Forest::new(0);
    turn(&mut forest, 2, &[1, 2], &[10]);
    turn(&mut forest, 4, &[1, 2, 10, 3], &[20]);
    turn(&mut forest, 2, &[1, 5, 6], &[40]);
    turn(&mut forest, 4, &[1, 5, 6, 40, 7], &[50]);
    let collected = collect(&forest, None, true);
    assert_eq!(
        tokens(&collected),
        [vec![1, 2, 10, 3, 20], vec![1, 5, 6, 40, 7, 50]]
    );
    assert_eq!(
        collected.session_metadata["breaks"],
        json!([{"turn": 3, "shared": 1, "expected": 5}])
    );
}

#[test]
fn merging_stops_at_a_turn_that_did_not_complete_and_nothing_after_it_is_lost() {
    let mut forest = Forest::new(0);
    turn(&mut forest, 1, &[1], &[10]);
    let mut cut = crate::support::generation(&[1, 10, 2], &[(20, -0.5)]);
    cut.finish = Some(FinishReason::Length);
    crate::support::record(&mut forest, 3, cut);
    turn(&mut forest, 5, &[1, 10, 2, 20, 3], &[30]);
    let collected = collect(&forest, None, false);
    assert_eq!(tokens(&collected), [vec![1, 10, 2, 20]]);
    assert_eq!(collected.samples[0].status, SampleStatus::Truncated);
    let collected = collect(&forest, None, true);
    assert_eq!(
        tokens(&collected),
        [vec![1, 10, 2, 20], vec![1, 10, 2, 20, 3, 30]]
    );
    assert_eq!(collected.samples[1].loss_mask.as_deref(), Some(&[1][..]));
}

#[test]
fn a_turn_that_was_prepared_before_the_session_closed_is_not_recorded() {
    let mut forest = Forest::new(0);
    let epoch = forest.epoch();
    forest.close();
    let late = crate::support::generation(&[1], &[(2, 0.0)]);
    assert!(
        forest
            .commit(epoch, late, rollout_session::TurnContext::default())
            .is_err()
    );
    assert!(forest.is_empty());
}

#[test]
fn history_is_stored_once() {
    let mut forest = Forest::new(0);
    let mut prompt: Vec<u32> = (0..1_000).collect();
    turn(&mut forest, 1, &prompt, &[7; 10]);
    let first = forest.heap_bytes();
    let mut messages = 1;
    for _ in 0..20 {
        prompt = join(&[&prompt, &[7; 10], &[8; 5]]);
        messages += 2;
        turn(&mut forest, messages, &prompt, &[7; 10]);
    }
    // 5 prompt ids at 4 bytes, 10 output ids with log-probabilities at 12.
    assert_eq!(forest.heap_bytes() - first, 20 * (5 * 4 + 10 * 12));
    let head = forest.head().unwrap();
    assert_eq!(forest.ids(head), join(&[&prompt, &[7; 10]]));
}
