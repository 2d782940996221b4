//! One planned output: its tokens, where it ends, and why.
//!
//! Everything about an output is decided when its request arrives; the scheduler only decides when each token is there. Drawn
//! tokens are not stored: they are functions of the seed and their position.

use std::sync::Arc;

use regex::Regex;
use rollout_tokenizer::Tokenizer;

use crate::numbers;

/// One in this many drawn tokens ends the sequence.
const EOS_EVERY: usize = 400;

/// When a drawn sequence ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Not at all.
    Never,
    /// At any position from this one on, with a small chance each.
    ByChanceFrom(usize),
    /// At this position.
    At(usize),
}

/// Tokens by position: those of a text first, then drawn ones.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Tokens that are given.
    pub listed: Arc<[u32]>,
    /// Seed of the others.
    pub seed: u64,
    /// What the others are drawn from; not empty.
    pub alphabet: Arc<[u32]>,
    /// The token that ends a sequence, if the model has one.
    pub eos: Option<u32>,
    /// When the others end.
    pub ends: Ends,
    /// Every token is this one, whatever else is said: a `logit_bias` that outweighs everything.
    pub forced: Option<u32>,
}

impl Tokens {
    /// The token at a position.
    pub fn at(&self, position: usize) -> u32 {
        if let Some(token) = self.forced {
            return token;
        }
        if let Some(token) = self.listed.get(position) {
            return *token;
        }
        let draw = numbers::mix(self.seed, position as u64);
        let ends = match self.ends {
            Ends::Never => false,
            Ends::ByChanceFrom(first) => position >= first && numbers::below(draw, EOS_EVERY) == 0,
            Ends::At(at) => position == at,
        };
        match self.eos {
            Some(eos) if ends => eos,
            _ => self.alphabet[numbers::below(numbers::scramble(draw), self.alphabet.len())],
        }
    }
}

/// Why an output ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It has as many tokens as were asked for.
    Length,
    /// A token that ends it.
    Token(u32),
    /// A text, or what a regular expression matched.
    Text(Arc<str>),
}

/// What the request says about its end.
#[derive(Debug, Clone, Default)]
pub struct StopRules {
    /// Most tokens.
    pub max_new_tokens: usize,
    /// No stop token ends it before it has this many.
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

/// A planned output.
#[derive(Debug, Clone)]
pub struct Output {
    tokens: Tokens,
    length: usize,
    stop: Stop,
}

impl Output {
    /// Cuts tokens where the rules say.
    pub fn plan(tokens: Tokens, rules: &StopRules, tokenizer: &Tokenizer) -> Self {
        let mut texts = TextStops::new(rules);
        for position in 0..rules.max_new_tokens {
            let token = tokens.at(position);
            let length = position + 1;
            if length >= rules.max_new_tokens {
                break;
            }
            let ends =
                tokenizer.eos_ids().contains(&token) || rules.stop_token_ids.contains(&token);
            if ends && !rules.ignore_eos && length >= rules.min_new_tokens {
                return Self {
                    tokens,
                    length,
                    stop: Stop::Token(token),
                };
            }
            if let Some(stop) = texts.push(token, tokenizer) {
                return Self {
                    tokens,
                    length,
                    stop: Stop::Text(stop),
                };
            }
        }
        Self {
            tokens,
            length: rules.max_new_tokens,
            stop: Stop::Length,
        }
    }

    /// The same output cut to no token at all.
    #[must_use]
    pub fn truncated(&self) -> Self {
        Self {
            tokens: self.tokens.clone(),
            length: 0,
            stop: Stop::Length,
        }
    }

    /// Its tokens in all.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Why it ends.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The token at a position.
    pub fn token(&self, position: usize) -> u32 {
        self.tokens.at(position)
    }

    /// The first `count` tokens.
    pub fn tokens(&self, count: usize) -> Vec<u32> {
        (0..count)
            .map(|position| self.tokens.at(position))
            .collect()
    }

    /// Seed for everything else that belongs to this output.
    pub fn seed(&self) -> u64 {
        self.tokens.seed
    }

    /// Whether the model had no choice.
    pub fn is_forced(&self) -> bool {
        self.tokens.forced.is_some()
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

    fn push(&mut self, token: u32, tokenizer: &Tokenizer) -> Option<Arc<str>> {
        if self.longest == 0 {
            return None;
        }
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        let keep = self.tail.len().min(self.longest);
        self.tail.drain(..self.tail.len() - keep);
        self.tail.extend(bytes);
        let text = String::from_utf8_lossy(&self.tail);
        let by_text = self
            .rules
            .stop
            .iter()
            .find(|stop| text.contains(stop.as_str()));
        if let Some(stop) = by_text {
            return Some(stop.as_str().into());
        }
        let found = self
            .rules
            .stop_regex
            .iter()
            .find_map(|regex| regex.find(&text))?;
        Some(found.as_str().into())
    }
}
