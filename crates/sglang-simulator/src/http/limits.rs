//! What fits: prompt and output against the context, ids against the vocabulary.

use super::App;
use super::reply::ApiError;
use crate::replies::StopRules;
use crate::wire::sampling::SamplingParams;

/// SGLang keeps so many tokens of the context free.
const RESERVED_TOKENS: usize = 6;

impl App {
    /// Longest prompt that the scheduler takes.
    pub(crate) fn max_prompt(&self) -> usize {
        self.context_length() - RESERVED_TOKENS
    }

    /// Checks prompt and output against the context length, and answers where the output ends.
    pub(crate) fn check_lengths(
        &self,
        prompt: &[u32],
        params: &SamplingParams,
    ) -> Result<StopRules, String> {
        let (given, context) = (prompt.len(), self.context_length());
        if given == 0 {
            return Err("The input is empty: give at least one token.".into());
        }
        if given >= context {
            return Err(format!(
                "The input ({given} tokens) is longer than the model's context length ({context} tokens)."
            ));
        }
        let rules = params.stop_rules(context - given);
        let wanted = rules.max_new_tokens;
        let total = given.saturating_add(wanted);
        if total > context {
            return Err(format!(
                "Requested token count exceeds the model's maximum context length of {context} tokens. You requested a total of \
                 {total} tokens: {given} tokens from the input messages and {wanted} tokens for the completion. Please reduce the \
                 number of tokens in the input messages or the completion to fit within the limit."
            ));
        }
        if given > self.max_prompt() {
            return Err(format!(
                "Input length ({given} tokens) exceeds the maximum allowed length ({} tokens). Use a shorter input or enable \
                 --allow-auto-truncate.",
                self.max_prompt()
            ));
        }
        Ok(rules)
    }

    /// A token id outside of the vocabulary ends the real server; so it does this one.
    pub(crate) fn check_vocabulary(&self, prompt: &[u32]) -> Result<(), ApiError> {
        match prompt.iter().find(|id| **id as usize >= self.vocab_size) {
            None => Ok(()),
            Some(id) => {
                self.engine.die(&format!(
                    "token id {id} is outside of the vocabulary of {}",
                    self.vocab_size
                ));
                Err(ApiError::Dead)
            }
        }
    }
}
