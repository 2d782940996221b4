//! Turns without an engine.

use rollout_session::{
    CollectOptions, Collected, FinishReason, Forest, Generation, TurnContext, TurnId, plan,
};

/// A completed generation.
pub(crate) fn generation(prompt: &[u32], output: &[(u32, f64)]) -> Generation {
    Generation {
        prompt_ids: prompt.to_vec(),
        output_ids: output.iter().map(|(id, _)| *id).collect(),
        log_probs: output.iter().map(|(_, log_prob)| *log_prob).collect(),
        finish: Some(FinishReason::Stop),
        prompt_tokens: i64::try_from(prompt.len()).unwrap(),
        ..Generation::default()
    }
}

/// Records a turn of a request with so many messages.
pub(crate) fn record(forest: &mut Forest, messages: usize, generation: Generation) -> TurnId {
    let context = TurnContext {
        messages: Some(messages),
        ..TurnContext::default()
    };
    forest.commit(forest.epoch(), generation, context).unwrap()
}

/// Records a turn with outputs of probability 1.
pub(crate) fn turn(forest: &mut Forest, messages: usize, prompt: &[u32], output: &[u32]) -> TurnId {
    let output: Vec<(u32, f64)> = output.iter().map(|id| (*id, 0.0)).collect();
    record(forest, messages, generation(prompt, &output))
}

/// Collects without a decoder.
pub(crate) fn collect(forest: &Forest, max_seq_len: Option<usize>, split: bool) -> Collected {
    let options = CollectOptions {
        max_seq_len,
        split,
        ..CollectOptions::default()
    };
    let collected = plan(forest, options).assemble(forest, &[]);
    for sample in &collected.samples {
        sample.validate().unwrap();
    }
    collected
}

/// Prompt and output ids, one after the other.
pub(crate) fn join(parts: &[&[u32]]) -> Vec<u32> {
    parts.concat()
}
