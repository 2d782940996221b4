//! What the sampling parameters make of the language's probabilities at one position, and how a token is drawn from that.
//!
//! Penalties, `logit_bias` and withheld end tokens move single tokens out of the order of the law; everything else keeps its rank. So a
//! position costs as much as the tokens that are moved, whatever the vocabulary. As in SGLang, log-probabilities show the moved logits at the
//! request's temperature, and `top_k`, `top_p` and `min_p` only limit what is drawn.
//!
//! **Caveat**: what an oracle or a script means to say is not drawn, so it is not shaped.

use std::collections::HashMap;
use std::sync::Arc;

use super::language::{Context, Language, NEVER};
use super::law::{EXPONENT, Law, as_f64};
use crate::numbers;

/// Logit of the likeliest token. The language fixes differences of logits only; a repetition penalty divides those above 0.
const HIGHEST_LOGIT: f64 = 8.0;

/// A bias from which on nothing else is ever sampled, or that token never.
const OVERWHELMING_BIAS: f64 = 50.0;

/// What the parameters of a request say about probabilities.
#[derive(Debug, Clone)]
pub struct Shaping {
    /// Temperature; none takes the likeliest token, and shows probabilities at 1.
    pub temperature: Option<f64>,
    /// Draws are among so many tokens.
    pub top_k: usize,
    /// Draws are among the likeliest tokens that have this share together.
    pub top_p: f64,
    /// Draws are among tokens that have this share of the likeliest one's probability.
    pub min_p: f64,
    /// Taken from a token's logit for each time that it was said.
    pub frequency_penalty: f64,
    /// Taken from a token's logit once it was said.
    pub presence_penalty: f64,
    /// Scales the logit of a token that was said.
    pub repetition_penalty: f64,
    /// Added to logits.
    pub logit_bias: Arc<[(u32, f64)]>,
    /// Tokens that are not said before the position `withheld_until`.
    pub withheld: Arc<[u32]>,
    /// Least tokens of the output.
    pub withheld_until: usize,
}

impl Default for Shaping {
    fn default() -> Self {
        Self {
            temperature: Some(1.0),
            top_k: usize::MAX,
            top_p: 1.0,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Arc::default(),
            withheld: Arc::default(),
            withheld_until: 0,
        }
    }
}

impl Shaping {
    /// The law that its temperature follows.
    pub fn law(&self, language: &Language) -> Arc<Law> {
        language.law(self.temperature.unwrap_or(1.0))
    }

    /// The token that the bias forces, if it outweighs all others.
    pub fn forced_token(&self) -> Option<u32> {
        let highest = self
            .logit_bias
            .iter()
            .max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (token, bias) = highest?;
        (*bias >= OVERWHELMING_BIAS).then_some(*token)
    }

    /// Whether the bias keeps a token from being said at all.
    pub fn forbids(&self, token: u32) -> bool {
        self.logit_bias
            .iter()
            .any(|(of, bias)| *of == token && *bias <= -OVERWHELMING_BIAS)
    }

    fn penalizes(&self) -> bool {
        self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
            || (self.repetition_penalty - 1.0).abs() > f64::EPSILON
    }

    fn cuts(&self, size: usize) -> bool {
        self.top_k < size || self.top_p < 1.0 || self.min_p > 0.0
    }

    /// The logit of a token that has `logit` by itself and was said so often before.
    fn logit(&self, token: u32, logit: f64, said: u32) -> f64 {
        let mut shaped = logit;
        if said > 0 {
            shaped -= self.frequency_penalty * f64::from(said) + self.presence_penalty;
            shaped = if shaped < 0.0 {
                shaped * self.repetition_penalty
            } else {
                shaped / self.repetition_penalty
            };
        }
        let biases = self.logit_bias.iter().filter(|(of, _)| *of == token);
        shaped + biases.map(|(_, bias)| bias).sum::<f64>()
    }
}

/// The tokens of an output so far, counted as far as its parameters care.
#[derive(Debug, Default)]
pub struct Spoken {
    position: usize,
    counts: HashMap<u32, u32>,
}

impl Spoken {
    /// One more token.
    pub fn push(&mut self, token: u32, shaping: &Shaping) {
        self.position += 1;
        if shaping.penalizes() {
            *self.counts.entry(token).or_default() += 1;
        }
    }
}

/// A token that is not where the law has it.
#[derive(Debug)]
struct Moved {
    token: u32,
    log_weight: f64,
}

/// The probabilities of all tokens at one position.
#[derive(Debug)]
pub struct Chances<'a> {
    language: &'a Language,
    law: &'a Law,
    context: Context,
    /// Likeliest first.
    moved: Vec<Moved>,
    /// Ranks that moved tokens left, ascending.
    left: Vec<usize>,
    log_total: f64,
}

impl<'a> Chances<'a> {
    /// The chances after a text, of which `spoken` is the part that was generated.
    pub fn new(
        language: &'a Language,
        law: &'a Law,
        context: Context,
        shaping: &Shaping,
        spoken: &Spoken,
    ) -> Self {
        let mut chances = Self {
            language,
            law,
            context,
            moved: Vec::new(),
            left: Vec::new(),
            log_total: law.sum().ln(),
        };
        let withheld = if spoken.position < shaping.withheld_until {
            &shaping.withheld[..]
        } else {
            &[]
        };
        let biased = shaping.logit_bias.iter().map(|(token, _)| token);
        let mut tokens: Vec<u32> = spoken
            .counts
            .keys()
            .chain(biased)
            .chain(withheld)
            .copied()
            .collect();
        if tokens.is_empty() {
            return chances;
        }
        tokens.sort_unstable();
        tokens.dedup();
        for token in tokens {
            let rank = language.rank_of(context, token);
            let logit = HIGHEST_LOGIT
                + rank.map_or(f64::from(NEVER), |rank| -EXPONENT * as_f64(rank + 1).ln());
            let said = spoken.counts.get(&token).copied().unwrap_or(0);
            let log_weight = if withheld.contains(&token) {
                f64::NEG_INFINITY
            } else {
                (shaping.logit(token, logit, said) - HIGHEST_LOGIT) / law.temperature()
            };
            chances.left.extend(rank);
            chances.moved.push(Moved { token, log_weight });
        }
        chances.left.sort_unstable();
        chances
            .moved
            .sort_by(|a, b| b.log_weight.total_cmp(&a.log_weight));
        let rest: f64 = chances
            .runs(law.size())
            .map(|(first, end)| law.between(first, end))
            .sum();
        let weights = chances.moved.iter().map(|moved| moved.log_weight);
        chances.log_total = log_sum(std::iter::once(rest.ln()).chain(weights));
        chances
    }

    /// Runs of ranks below `end` whose tokens are where the law has them.
    fn runs(&self, end: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut first = 0;
        let gaps = self.left.iter().copied().filter(move |rank| *rank < end);
        gaps.chain(std::iter::once(end)).filter_map(move |gap| {
            let run = (first, gap);
            first = gap + 1;
            (run.0 < run.1).then_some(run)
        })
    }

    /// Log-probability of a token.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "float32 is what an engine computes"
    )]
    pub fn log_probability(&self, token: u32) -> f32 {
        if self.moved.is_empty() {
            return self.language.log_probability(self.context, self.law, token);
        }
        let moved = self.moved.iter().find(|moved| moved.token == token);
        let log_weight = match (moved, self.language.rank_of(self.context, token)) {
            (Some(moved), _) => moved.log_weight,
            (None, Some(rank)) => self.law.log_weight(rank),
            (None, None) => return NEVER,
        };
        // plus 0: no minus 0 for what is certain
        (log_weight - self.log_total) as f32 + 0.0
    }

    /// Tokens that can be said, likeliest first, with the logarithm of their weight.
    pub fn ranked(&self) -> impl Iterator<Item = (f64, u32)> + '_ {
        let mut moved = self.moved.iter().peekable();
        let mut ranks = self
            .runs(self.law.size())
            .flat_map(|(first, end)| first..end)
            .peekable();
        std::iter::from_fn(move || {
            let kept = ranks.peek().map(|rank| self.law.log_weight(*rank));
            let next_moved = moved.peek().map(|moved| moved.log_weight);
            if next_moved.is_some_and(|weight| kept.is_none_or(|kept| weight > kept)) {
                return moved.next().map(|moved| (moved.log_weight, moved.token));
            }
            let rank = ranks.next()?;
            Some((
                self.law.log_weight(rank),
                self.language.token_at(self.context, rank),
            ))
        })
    }

    /// The `count` likeliest tokens with their log-probabilities.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "float32 is what an engine computes"
    )]
    pub fn top(&self, count: usize) -> Vec<(f32, u32)> {
        if self.moved.is_empty() {
            return self.language.top(self.context, self.law, count);
        }
        let said = self
            .ranked()
            .map(|(log_weight, token)| ((log_weight - self.log_total) as f32 + 0.0, token));
        let listed: Vec<u32> = self.moved.iter().map(|moved| moved.token).collect();
        let never = self.language.never_said().filter(|id| !listed.contains(id));
        said.chain(never.map(|id| (NEVER, id)))
            .take(count)
            .collect()
    }

    /// A token, drawn within what `top_k`, `top_p` and `min_p` leave. `unit` is from 0 up to 1.
    pub fn draw(&self, unit: f64, shaping: &Shaping) -> u32 {
        if !shaping.cuts(self.law.size()) {
            return self.draw_any(unit);
        }
        if self.moved.is_empty() {
            let law = self.law;
            let kept = shaping
                .top_k
                .min(law.within(shaping.top_p))
                .min(law.above(shaping.min_p))
                .clamp(1, law.size());
            let rank = law.find(0, kept, unit * law.between(0, kept));
            return self.language.token_at(self.context, rank);
        }
        self.draw_listed(unit, shaping)
    }

    fn draw_any(&self, unit: f64) -> u32 {
        if self.moved.is_empty() {
            return self.language.token_at(self.context, self.law.rank(unit));
        }
        let mut target = unit;
        for moved in &self.moved {
            let share = (moved.log_weight - self.log_total).exp();
            if target < share {
                return moved.token;
            }
            target -= share;
        }
        let mut target = target * self.log_total.exp();
        let mut last = None;
        for (first, end) in self.runs(self.law.size()) {
            let weight = self.law.between(first, end);
            if target < weight {
                last = Some(self.law.find(first, end, target));
                break;
            }
            target -= weight;
            last = Some(end - 1);
        }
        match last {
            Some(rank) => self.language.token_at(self.context, rank),
            None => self.moved.first().map_or(0, |moved| moved.token),
        }
    }

    fn draw_listed(&self, unit: f64, shaping: &Shaping) -> u32 {
        let mut kept: Vec<(f64, u32)> = Vec::new();
        let (mut before, mut highest) = (0.0, f64::NEG_INFINITY);
        for (log_weight, token) in self.ranked() {
            let share = (log_weight - self.log_total).exp();
            highest = highest.max(share);
            let cut = kept.len() >= shaping.top_k
                || before > shaping.top_p
                || share < shaping.min_p * highest;
            if cut && !kept.is_empty() {
                break;
            }
            before += share;
            kept.push((share, token));
        }
        let mut target = unit * before;
        for (share, token) in &kept {
            if target < *share {
                return *token;
            }
            target -= share;
        }
        kept.first().map_or(0, |(_, token)| *token)
    }
}

/// The logarithm of a sum whose terms are given as logarithms.
fn log_sum(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let highest = terms.clone().fold(f64::NEG_INFINITY, f64::max);
    if highest == f64::NEG_INFINITY {
        return 0.0;
    }
    highest + terms.map(|term| (term - highest).exp()).sum::<f64>().ln()
}

/// The draw of an attempt at a position.
pub(super) fn unit(seed: u64, position: usize, attempt: u64) -> f64 {
    numbers::unit(numbers::mix(numbers::mix(seed, position as u64), attempt))
}
