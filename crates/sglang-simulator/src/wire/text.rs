//! The text of an output: trimming, and cutting it into pieces for a stream.

use rollout_tokenizer::Tokenizer;

use crate::replies::{Output, Stop};
use crate::scheduler::Ending;

/// How tokens become text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextOptions {
    pub(crate) skip_special_tokens: bool,
    pub(crate) no_stop_trim: bool,
}

/// The text of a finished output.
pub(crate) fn of_output(
    tokenizer: &Tokenizer,
    output: &Output,
    generated: usize,
    ending: Ending,
    options: TextOptions,
) -> String {
    let mut ids = output.tokens(generated).to_vec();
    let trim = ending == Ending::Complete && !options.no_stop_trim;
    if trim && matches!(output.stop(), Stop::Token(_)) {
        ids.pop();
    }
    let mut text = tokenizer
        .decode(&ids, options.skip_special_tokens)
        .unwrap_or_default();
    if let (Ending::Complete, Stop::Text(stop)) = (ending, output.stop()) {
        // what the last token brought after the stop text goes in any case
        let at = text
            .find(&**stop)
            .map(|at| if trim { at } else { at + stop.len() });
        text.truncate(at.unwrap_or(text.len()));
    }
    text
}

/// Turns tokens into text as they come, at constant cost per token: only a short window is decoded again, and half a character
/// at its end is held back.
#[derive(Debug, Default)]
pub(crate) struct Detokenizer {
    window: Vec<u32>,
    /// How many tokens of the window are in the text already.
    settled: usize,
}

impl Detokenizer {
    /// Tokens after which a window begins anew.
    const KEEP: usize = 6;

    /// The text that one more token adds.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, token: u32, skip_special: bool) -> String {
        self.window.push(token);
        let before = tokenizer
            .decode(&self.window[..self.settled], skip_special)
            .unwrap_or_default();
        let after = tokenizer
            .decode(&self.window, skip_special)
            .unwrap_or_default();
        let broken = after.ends_with('\u{fffd}') && self.window.len() - self.settled < 4;
        if broken || !after.starts_with(&before) {
            return String::new();
        }
        let added = after[before.len()..].to_owned();
        self.settled = self.window.len();
        if self.settled > Self::KEEP {
            let drop = self.settled - Self::KEEP / 2;
            self.window.drain(..drop);
            self.settled = self.window.len();
        }
        added
    }
}
