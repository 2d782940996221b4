//! One planned output: its tokens, where it ends, and why.
//!
//! Everything about an output is decided when its request arrives; the scheduler only decides when each token is there.

use std::sync::Arc;

use regex::Regex;
use rollout_tokenizer::Tokenizer;

use super::chances::{self, Chances, Shaping, Spoken};
use super::language::{Context, Language};
use super::law::Law;
use crate::numbers;

/// One in this many drawn tokens ends the sequence.
const EOS_EVERY: usize = 400;

/// When a drawn sequence ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Not by itself; at most by the chance that the language has for it.
    Never,
    /// At any position, with a small chance each.
    ByChance,
    /// At this position, and not before.
    At(usize),
}

/// What the model means to say, and how it says the rest.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Tokens that it means to say first.
    pub listed: Vec<u32>,
    /// When what it draws after them ends.
    pub ends: Ends,
    /// Seed of the draws.
    pub seed: u64,
    /// What the draws are among, and how likely each token is.
    pub shaping: Shaping,
    /// Every token is this one, whatever else is said: a `logit_bias` that outweighs everything.
    pub forced: Option<u32>,
}

/// Why an output ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It has as many tokens as were asked for.
    Length,
    /// A token that ends it.
    Token(u32),
    /// A text.
    Text(Arc<str>),
    /// A regular expression.
    Expression(Arc<str>),
}

/// What the request says about its end.
#[derive(Debug, Clone, Default)]
pub struct StopRules {
    /// Most tokens.
    pub max_new_tokens: usize,
    /// No stop token is said before it has this many.
    pub min_new_tokens: usize,
    /// Stop tokens do not count.
    pub ignore_eos: bool,
    /// Tokens that end it, beside the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Texts that end it.
    pub stop: Vec<String>,
    /// Regular expressions that end it.
    pub stop_regex: Vec<Regex>,
}

impl StopRules {
    fn is_stop(&self, token: u32, tokenizer: &Tokenizer) -> bool {
        !self.ignore_eos
            && (tokenizer.eos_ids().contains(&token) || self.stop_token_ids.contains(&token))
    }
}

/// A planned output.
#[derive(Debug, Clone)]
pub struct Output {
    tokens: Arc<[u32]>,
    intended: usize,
    reasoning: usize,
    stop: Stop,
}

impl Output {
    /// Writes an output after a prompt, up to where the rules end it.
    pub fn plan(
        intent: &Intent,
        prompt: Context,
        rules: &StopRules,
        language: &Language,
        tokenizer: &Tokenizer,
    ) -> Self {
        let mut speaker = Speaker {
            intent,
            rules,
            language,
            tokenizer,
            law: intent.shaping.law(language),
            spoken: Spoken::default(),
        };
        let mut texts = TextStops::new(rules);
        let (mut tokens, mut context, mut stop) = (Vec::new(), prompt, Stop::Length);
        while tokens.len() < rules.max_new_tokens {
            let token = speaker.next(tokens.len(), context);
            tokens.push(token);
            speaker.spoken.push(token, &intent.shaping);
            context = context.then(token);
            if tokens.len() == rules.max_new_tokens {
                break;
            }
            if rules.is_stop(token, tokenizer) && tokens.len() > rules.min_new_tokens {
                stop = Stop::Token(token);
                break;
            }
            if let Some(found) = texts.push(token, tokenizer) {
                stop = found;
                break;
            }
        }
        Self {
            tokens: tokens.into(),
            intended: intent.listed.len(),
            reasoning: reasoning_length(&intent.listed, tokenizer),
            stop,
        }
    }

    /// The same output cut to no token at all.
    #[must_use]
    pub fn truncated(&self) -> Self {
        Self {
            tokens: Arc::default(),
            intended: 0,
            reasoning: 0,
            stop: Stop::Length,
        }
    }

    /// Its tokens in all.
    pub fn length(&self) -> usize {
        self.tokens.len()
    }

    /// Why it ends.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The token at a position.
    pub fn token(&self, position: usize) -> u32 {
        self.tokens[position]
    }

    /// The first `count` tokens.
    pub fn tokens(&self, count: usize) -> &[u32] {
        &self.tokens[..count.min(self.tokens.len())]
    }

    /// How many of its first tokens are reasoning.
    pub fn reasoning(&self) -> usize {
        self.reasoning
    }

    /// Whether the model meant to say the token at a position.
    pub fn is_intended(&self, position: usize) -> bool {
        position < self.intended
    }
}

/// Tokens up to the end of `<think>...</think>`, when the text begins with it.
fn reasoning_length(tokens: &[u32], tokenizer: &Tokenizer) -> usize {
    const OPEN: &[u8] = b"<think>";
    const CLOSE: &[u8] = b"</think>";
    let mut text = Vec::new();
    for (position, token) in tokens.iter().enumerate() {
        text.extend(tokenizer.token_bytes(*token).unwrap_or_default());
        if text.len() >= OPEN.len() && !text.starts_with(OPEN) {
            return 0;
        }
        let tail = &text[text.len().saturating_sub(CLOSE.len() + 64)..];
        if tail.windows(CLOSE.len()).any(|window| window == CLOSE) {
            return position + 1;
        }
    }
    0
}

/// Says one token after the other.
struct Speaker<'a> {
    intent: &'a Intent,
    rules: &'a StopRules,
    language: &'a Language,
    tokenizer: &'a Tokenizer,
    law: Arc<Law>,
    spoken: Spoken,
}

impl Speaker<'_> {
    fn next(&self, position: usize, context: Context) -> u32 {
        let token = self.wanted(position, context);
        let too_early = position < self.rules.min_new_tokens
            || self.rules.ignore_eos && self.intent.forced.is_none();
        if too_early && self.ends(token) {
            return self.ordinary(position, context);
        }
        token
    }

    fn wanted(&self, position: usize, context: Context) -> u32 {
        if let Some(token) = self.intent.forced {
            return token;
        }
        if let Some(token) = self.intent.listed.get(position) {
            return *token;
        }
        let eos = self.tokenizer.eos_ids().first().copied();
        let draw = numbers::mix(self.intent.seed ^ 0xe05, position as u64);
        match (self.intent.ends, eos) {
            (Ends::ByChance, Some(eos)) if position > 0 && numbers::below(draw, EOS_EVERY) == 0 => {
                eos
            }
            (Ends::At(at), Some(eos)) if position == at => eos,
            (Ends::At(_), _) => self.ordinary(position, context),
            _ => {
                let drawn = self.drawn(&self.chances(context), position, 0);
                drawn.unwrap_or_else(|| self.language.likeliest(context))
            }
        }
    }

    fn chances(&self, context: Context) -> Chances<'_> {
        let shaping = &self.intent.shaping;
        Chances::new(self.language, &self.law, context, shaping, &self.spoken)
    }

    fn drawn(&self, chances: &Chances<'_>, position: usize, attempt: u64) -> Option<u32> {
        let shaping = &self.intent.shaping;
        if shaping.temperature.is_none() {
            let rank = usize::try_from(attempt).ok()?;
            return chances.ranked().nth(rank).map(|(_, token)| token);
        }
        let unit = chances::unit(self.intent.seed, position, attempt);
        Some(chances.draw(unit, shaping))
    }

    /// A token that does not end the output.
    fn ordinary(&self, position: usize, context: Context) -> u32 {
        let chances = self.chances(context);
        let mut drawn = (0..64).filter_map(|attempt| self.drawn(&chances, position, attempt));
        let found = drawn.find(|token| !self.ends(*token));
        let mut likely = chances.ranked().map(|(_, token)| token);
        found
            .or_else(|| likely.find(|token| !self.ends(*token)))
            .unwrap_or_else(|| self.language.likeliest(context))
    }

    fn ends(&self, token: u32) -> bool {
        self.tokenizer.eos_ids().contains(&token) || self.rules.stop_token_ids.contains(&token)
    }
}

/// Looks for stop texts in the tail of what was generated.
struct TextStops<'a> {
    rules: &'a StopRules,
    longest: usize,
    tail: Vec<u8>,
}

impl<'a> TextStops<'a> {
    /// How far back a regular expression may match, in bytes.
    const REGEX_TAIL: usize = 512;

    fn new(rules: &'a StopRules) -> Self {
        let texts = rules.stop.iter().map(String::len).max().unwrap_or(0);
        let longest = if rules.stop_regex.is_empty() {
            texts
        } else {
            texts.max(Self::REGEX_TAIL)
        };
        Self {
            rules,
            longest,
            tail: Vec::new(),
        }
    }

    fn push(&mut self, token: u32, tokenizer: &Tokenizer) -> Option<Stop> {
        if self.longest == 0 {
            return None;
        }
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        let keep = self.tail.len().min(self.longest);
        self.tail.drain(..self.tail.len() - keep);
        self.tail.extend(bytes);
        let text = String::from_utf8_lossy(&self.tail);
        if let Some(stop) = self
            .rules
            .stop
            .iter()
            .find(|stop| text.contains(stop.as_str()))
        {
            return Some(Stop::Text(stop.as_str().into()));
        }
        let found = self
            .rules
            .stop_regex
            .iter()
            .find(|regex| regex.is_match(&text))?;
        Some(Stop::Expression(found.as_str().into()))
    }
}
