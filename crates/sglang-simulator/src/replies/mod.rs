//! What the simulated model says.
//!
//! **Inputs**: the prompt, the sampling seed, and what the request was about. **Output**: a planned [`Output`].
//!
//! **Guarantees**: the same configuration, prompt and sampling seed give the same reply. Without a sampling seed, requests for one
//! prompt are numbered in the order in which they come, and each gets another reply, so that the samples of a group differ; a
//! request with temperature 0 always gets the first one. Request ids play no part.

mod chances;
#[cfg(test)]
mod chances_tests;
mod conversation;
mod dataset;
mod ebnf;
mod language;
mod law;
mod oracle;
mod output;
mod pattern;
mod schema;
pub mod script;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rollout_tokenizer::{Tokenizer, TokenizerError};

pub use chances::{Chances, Shaping, Spoken};
pub use conversation::{Conversation, Turn};
pub use language::{Context, Language};
pub use law::Law;
pub use output::{Ends, Intent, Output, Stop, StopRules};

use crate::config::{Lengths, Oracle, Replies};
use crate::{Error, numbers};
use dataset::Problems;

/// Prompts whose requests are numbered; beyond this many the numbers start again.
const REMEMBERED_PROMPTS: usize = 1 << 20;

/// What a request asks of the model.
pub struct Ask<'a> {
    /// Prompt ids.
    pub prompt: &'a [u32],
    /// Chat messages, when it is a chat.
    pub messages: Option<&'a [serde_json::Value]>,
    /// Seed of this reply.
    pub seed: u64,
    tokenizer: &'a Tokenizer,
    conversation: OnceCell<Conversation>,
}

impl Ask<'_> {
    /// What was said so far.
    pub fn conversation(&self) -> &Conversation {
        self.conversation.get_or_init(|| {
            if let Some(messages) = self.messages {
                return Conversation::of_messages(messages);
            }
            Conversation::of_text(
                &self
                    .tokenizer
                    .decode(self.prompt, false)
                    .unwrap_or_default(),
            )
        })
    }
}

/// What a request demands beyond its prompt.
#[derive(Debug, Clone, Default)]
pub struct Demands {
    /// `sampling_seed`.
    pub sampling_seed: Option<i64>,
    /// What its parameters say about probabilities.
    pub shaping: Shaping,
    /// Which of several samples of one request it is.
    pub sample: usize,
    /// The text that a grammar forces.
    pub forced_text: Option<ForcedText>,
    /// Where it ends.
    pub stops: StopRules,
}

/// A text that a grammar leaves no choice about, written once its seed is known.
#[derive(Clone)]
pub struct ForcedText(pub Arc<dyn Fn(u64) -> String + Send + Sync>);

impl std::fmt::Debug for ForcedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForcedText")
    }
}

enum Source {
    Random,
    Lengths(Lengths),
    Oracle(Oracle, Problems),
    Script(script::Rules, Problems),
}

enum Said {
    Text(String),
    Drawn(Ends),
}

/// The model.
pub struct Model {
    seed: u64,
    source: Source,
    tokenizer: Arc<Tokenizer>,
    language: Language,
    asked: Mutex<HashMap<u64, u64>>,
    unknown: AtomicU64,
}

impl Model {
    /// Loads what the replies need.
    ///
    /// # Errors
    /// A data set or script cannot be read or understood.
    pub fn new(seed: u64, replies: &Replies, tokenizer: Arc<Tokenizer>) -> Result<Self, Error> {
        let source = match replies {
            Replies {
                oracle: Some(oracle),
                ..
            } => Source::Oracle(
                oracle.clone(),
                Problems::load(&oracle.dataset, "replies.oracle.dataset")?,
            ),
            Replies {
                script: Some(script),
                ..
            } => Source::Script(
                script::Rules::load(script)?,
                Problems::load(&script.dataset, "replies.script.dataset")?,
            ),
            Replies {
                lengths: Some(lengths),
                ..
            } => Source::Lengths(*lengths),
            Replies {
                oracle: None,
                script: None,
                lengths: None,
            } => Source::Random,
        };
        let language = Language::new(seed, &tokenizer)?;
        Ok(Self {
            seed,
            source,
            tokenizer,
            language,
            asked: Mutex::default(),
            unknown: AtomicU64::new(0),
        })
    }

    /// Requests for which the oracle knew no problem, or the script no rule.
    pub fn unknown_requests(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Plans the output of a request.
    ///
    /// # Errors
    /// The tokenizer cannot encode the text of the reply.
    pub fn reply(
        &self,
        prompt: &[u32],
        messages: Option<&[serde_json::Value]>,
        demands: &Demands,
    ) -> Result<Output, TokenizerError> {
        let context = self.language.start().then_all(prompt);
        let seed = self.seed_of(prompt, demands);
        let ask = Ask {
            prompt,
            messages,
            seed,
            tokenizer: &self.tokenizer,
            conversation: OnceCell::new(),
        };
        let said = match &demands.forced_text {
            Some(ForcedText(write)) => Said::Text(write(seed)),
            None => self.say(&ask),
        };
        let (listed, ends) = match said {
            Said::Text(text) => {
                let mut ids = self.tokenizer.encode(&text)?;
                ids.extend(self.tokenizer.eos_ids().first());
                // it cannot say what is forbidden to it, and has lost its thread then
                let forbidden = ids.iter().position(|id| demands.shaping.forbids(*id));
                ids.truncate(forbidden.unwrap_or(ids.len()));
                (ids, Ends::ByChance)
            }
            Said::Drawn(ends) => (Vec::new(), ends),
        };
        let intent = Intent {
            listed,
            ends: if demands.stops.ignore_eos {
                Ends::Never
            } else {
                ends
            },
            seed,
            shaping: demands.shaping.clone(),
            forced: demands.shaping.forced_token(),
        };
        Ok(Output::plan(
            &intent,
            context,
            &demands.stops,
            &self.language,
            &self.tokenizer,
        ))
    }

    /// The language of the model.
    pub fn language(&self) -> &Language {
        &self.language
    }

    fn seed_of(&self, prompt: &[u32], demands: &Demands) -> u64 {
        let prompt = numbers::of_tokens(prompt);
        let sample = match demands.sampling_seed {
            _ if demands.shaping.temperature.is_none() => 0,
            Some(seed) => numbers::mix(seed.cast_unsigned(), demands.sample as u64) | 1,
            None => self.number(prompt) << 1,
        };
        numbers::mix(numbers::mix(self.seed, prompt), sample)
    }

    /// How many requests asked this before.
    fn number(&self, prompt: u64) -> u64 {
        let mut asked = self.asked.lock();
        if asked.len() >= REMEMBERED_PROMPTS {
            asked.clear();
        }
        let number = asked.entry(prompt).or_insert(0);
        *number += 1;
        *number - 1
    }

    fn say(&self, ask: &Ask<'_>) -> Said {
        let text = match &self.source {
            Source::Random => return Said::Drawn(Ends::ByChance),
            Source::Lengths(lengths) => {
                return Said::Drawn(Ends::At(draw_length(*lengths, ask.seed) - 1));
            }
            Source::Oracle(oracle, problems) => {
                oracle::answer(problems, ask, oracle.correct_percent, oracle.words)
            }
            Source::Script(rules, problems) => rules.reply(ask, problems),
        };
        if let Some(text) = text {
            return Said::Text(text);
        }
        self.unknown.fetch_add(1, Ordering::Relaxed);
        Said::Drawn(Ends::ByChance)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive length far below the bounds"
)]
fn draw_length(lengths: Lengths, seed: u64) -> usize {
    let sigma = f64::from(lengths.sigma_percent) / 100.0;
    let factor = (sigma * numbers::normal(numbers::mix(seed, 0x1e))).exp();
    let straggler = numbers::below(numbers::mix(seed, 0x1f), 100) < lengths.tail_percent as usize;
    let tail = if straggler {
        f64::from(lengths.tail_factor)
    } else {
        1.0
    };
    (f64::from(lengths.median_tokens) * factor * tail)
        .round()
        .clamp(1.0, 1e9) as usize
}

#[cfg(test)]
mod tests;
