//! The toy language that the simulated model speaks: a probability for every token after every text.
//!
//! After each text the tokens have a random order, which is a function of the text, and Zipf's law gives the token of rank `r` a
//! logit of `-1.6 ln(1 + r)`. So probabilities sum to one, greedy decoding takes the most likely token, a lower temperature sharpens,
//! and scoring a text agrees with generating it; and none of it needs a table per text.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rollout_tokenizer::Tokenizer;

use super::law::Law;
use crate::{Error, numbers};

/// Log-probability of tokens that are never said (special ones, padding of the vocabulary).
pub(super) const NEVER: f32 = -40.0;

/// Temperatures whose tables are kept.
const REMEMBERED_TEMPERATURES: usize = 16;

/// Hash of a text, token by token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context(u64);

impl Context {
    /// The text with one more token.
    #[must_use]
    pub fn then(self, token: u32) -> Self {
        Self(numbers::mix(self.0, u64::from(token)))
    }

    /// The text with further tokens.
    #[must_use]
    pub fn then_all(self, tokens: &[u32]) -> Self {
        tokens
            .iter()
            .fold(self, |context, token| context.then(*token))
    }
}

/// The language. See the module's documentation.
#[derive(Debug)]
pub struct Language {
    seed: u64,
    /// Tokens that can be said.
    alphabet: Vec<u32>,
    /// Place of a token in the alphabet.
    places: Vec<Option<u32>>,
    laws: Mutex<HashMap<u64, Arc<Law>>>,
}

impl Language {
    /// The language of a tokenizer: every token of ordinary text, and the one that ends it.
    ///
    /// # Errors
    /// The tokenizer has no token of ordinary text.
    pub fn new(seed: u64, tokenizer: &Tokenizer) -> Result<Self, Error> {
        let highest = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let mut alphabet: Vec<u32> = (0..highest)
            .filter(|id| is_ordinary(tokenizer, *id))
            .collect();
        if alphabet.is_empty() {
            return Err(Error::config(
                "server.tokenizer",
                "has no token of ordinary text",
            ));
        }
        alphabet.extend(tokenizer.eos_ids().first());
        let mut places = vec![None; tokenizer.vocab_size()];
        for (place, id) in (0..).zip(&alphabet) {
            places[*id as usize] = Some(place);
        }
        Ok(Self {
            seed,
            alphabet,
            places,
            laws: Mutex::default(),
        })
    }

    /// The empty text.
    pub fn start(&self) -> Context {
        Context(numbers::scramble(self.seed ^ 0x1a96))
    }

    /// The law at a temperature.
    pub fn law(&self, temperature: f64) -> Arc<Law> {
        let temperature = temperature.clamp(0.01, 100.0);
        let mut laws = self.laws.lock();
        if laws.len() >= REMEMBERED_TEMPERATURES && !laws.contains_key(&temperature.to_bits()) {
            laws.clear();
        }
        let law = laws.entry(temperature.to_bits());
        law.or_insert_with(|| Arc::new(Law::new(self.alphabet.len(), temperature)))
            .clone()
    }

    /// The token of a rank after a text.
    pub fn token_at(&self, context: Context, rank: usize) -> u32 {
        self.alphabet[self.shuffled(context, rank, false)]
    }

    /// The most likely token after a text.
    pub fn likeliest(&self, context: Context) -> u32 {
        self.token_at(context, 0)
    }

    /// Rank of a token after a text; `None` for one that is never said.
    pub(super) fn rank_of(&self, context: Context, token: u32) -> Option<usize> {
        let place = self.places.get(token as usize).copied().flatten()?;
        Some(self.shuffled(context, place as usize, true))
    }

    /// Log-probability of a token after a text.
    pub fn log_probability(&self, context: Context, law: &Law, token: u32) -> f32 {
        self.rank_of(context, token)
            .map_or(NEVER, |rank| law.log_probability(rank))
    }

    /// The `count` most likely tokens after a text.
    pub fn top(&self, context: Context, law: &Law, count: usize) -> Vec<(f32, u32)> {
        let said = (0..self.alphabet.len())
            .map(|rank| (law.log_probability(rank), self.token_at(context, rank)));
        let never = self.never_said().map(|id| (NEVER, id));
        said.chain(never).take(count).collect()
    }

    /// Tokens that the language never says: special ones, and padding of the vocabulary.
    pub(super) fn never_said(&self) -> impl Iterator<Item = u32> + '_ {
        let places = (0..).zip(&self.places);
        places
            .filter(|(_, place)| place.is_none())
            .map(|(id, _)| id)
    }

    /// What happens when the model means to say a token, whatever it would say by itself: the token changes places with the one
    /// of a likely rank. Answers its log-probability and the most likely tokens.
    pub fn intended(
        &self,
        context: Context,
        law: &Law,
        token: u32,
        count: usize,
    ) -> (f32, Vec<(f32, u32)>) {
        let rank = law
            .rank(numbers::unit(numbers::scramble(context.0 ^ 0x1d)))
            .min(self.alphabet.len() - 1)
            / 4;
        let displaced = self.token_at(context, rank);
        let mut top = self.top(context, law, count);
        for (_, listed) in &mut top {
            if *listed == token {
                *listed = displaced;
            } else if *listed == displaced {
                *listed = token;
            }
        }
        (law.log_probability(rank), top)
    }

    /// A permutation of the alphabet's places that depends on the text: a Feistel network, walked until it stays inside.
    fn shuffled(&self, context: Context, place: usize, back: bool) -> usize {
        let size = self.alphabet.len() as u64;
        let half_bits = (u64::BITS - size.leading_zeros()).div_ceil(2).max(1);
        let mask = (1_u64 << half_bits) - 1;
        let mut value = place as u64;
        loop {
            let (mut left, mut right) = (value >> half_bits, value & mask);
            for round in 0..3 {
                let key = if back { 2 - round } else { round };
                let mixed = |half: u64| numbers::scramble(context.0 ^ (half << 8) ^ key) & mask;
                if back {
                    (left, right) = (right ^ mixed(left), left);
                } else {
                    (left, right) = (right, left ^ mixed(right));
                }
            }
            value = (left << half_bits) | right;
            if value < size {
                return usize::try_from(value).unwrap_or(place);
            }
        }
    }
}

fn is_ordinary(tokenizer: &Tokenizer, id: u32) -> bool {
    let shown = tokenizer.decode(&[id], true).unwrap_or_default();
    let looks_special = shown.len() > 2 && shown.starts_with('<') && shown.ends_with('>');
    !shown.is_empty() && !looks_special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language() -> Language {
        Language::new(7, &Tokenizer::builtin().unwrap()).unwrap()
    }

    #[test]
    fn every_token_has_one_rank() {
        let language = language();
        for seed in 0..20 {
            let context = language.start().then(seed);
            let mut seen: Vec<u32> = (0..language.alphabet.len())
                .map(|rank| language.token_at(context, rank))
                .collect();
            for (rank, token) in seen.iter().enumerate() {
                assert_eq!(language.rank_of(context, *token), Some(rank));
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), language.alphabet.len());
        }
    }

    #[test]
    fn an_intended_token_takes_a_likely_place() {
        let language = language();
        let law = language.law(1.0);
        let context = language.start().then(3);
        let unlikely = language.token_at(context, 600);
        let (value, top) = language.intended(context, &law, unlikely, 1000);
        assert!(value > language.log_probability(context, &law, unlikely));
        assert!(top.contains(&(value, unlikely)));
        assert_eq!(
            top.iter().filter(|(_, token)| *token == unlikely).count(),
            1
        );
    }
}
