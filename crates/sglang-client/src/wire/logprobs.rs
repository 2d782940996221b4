//! `[[logprob, id, text|null], ...]` as two plain vectors, without a JSON value per token.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// Ids and log-probs of generated tokens, of equal length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenLogProbs {
    /// Token ids.
    pub ids: Vec<i64>,
    /// Their log-probs.
    pub log_probs: Vec<f64>,
}

struct Triple(f64, i64);

impl<'de> Deserialize<'de> for Triple {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TripleVisitor;

        impl<'de> Visitor<'de> for TripleVisitor {
            type Value = Triple;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[logprob, token id, ...]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Triple, A::Error> {
                let log_prob: Option<f64> = seq
                    .next_element()?
                    .ok_or_else(|| A::Error::custom("an empty logprob entry"))?;
                let id: i64 = seq
                    .next_element()?
                    .ok_or_else(|| A::Error::custom("a logprob entry without a token id"))?;
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                let log_prob = log_prob
                    .ok_or_else(|| A::Error::custom("a generated token without a logprob"))?;
                Ok(Triple(log_prob, id))
            }
        }

        deserializer.deserialize_seq(TripleVisitor)
    }
}

impl<'de> Deserialize<'de> for TokenLogProbs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;

        impl<'de> Visitor<'de> for ListVisitor {
            type Value = TokenLogProbs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of [logprob, token id, ...]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TokenLogProbs, A::Error> {
                let mut out = TokenLogProbs::default();
                while let Some(Triple(log_prob, id)) = seq.next_element()? {
                    out.log_probs.push(log_prob);
                    out.ids.push(id);
                }
                Ok(out)
            }
        }

        deserializer.deserialize_seq(ListVisitor)
    }
}
