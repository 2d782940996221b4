//! Token ids of a row: can they be ids, and do they spell the response?
//!
//! Pure. Without the job's tokenizer only the size of an id is judged. The built-in one is at hand, so where the manifest names it, ids have to
//! be in its vocabulary and the ids of a kept response have to decode to its text. Engines leave special tokens out of the text when a job
//! asks for that, and cut a stop text off its end but not off the ids: neither is a fault.

use rollout_session::{Sample, SampleStatus};
use rollout_tokenizer::{Tokenizer, TokenizerError};

use crate::output::manifest::BUILTIN_TOKENIZER;

/// Vocabularies have some hundred thousand entries; no id is above this.
pub(super) const HIGHEST_ID: i64 = 1 << 24;

/// A stop text that an engine cut off the end is at most this long.
pub(super) const LONGEST_STOP: usize = 32;

/// Half a character at the end of a chunk.
const REPLACEMENT: char = '\u{fffd}';

/// Metadata of a collected sample that lacks text which could not be had.
const GAPS: &str = "response_gaps_missing";

/// What is known of a job's ids.
#[derive(Debug)]
pub(super) enum Ids {
    /// The job used the built-in tokenizer.
    Builtin(Box<Tokenizer>),
    /// The tokenizer is not at hand.
    Opaque,
}

/// Whether the ids of a response spell its text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    Same,
    Differs(String),
    /// It cannot be told.
    Unknown,
}

impl Ids {
    pub(super) fn of(tokenizer: Option<&str>) -> Result<Self, TokenizerError> {
        Ok(match tokenizer {
            Some(BUILTIN_TOKENIZER) => Self::Builtin(Box::new(Tokenizer::builtin()?)),
            Some(_) | None => Self::Opaque,
        })
    }

    /// The first id that no such tokenizer has. Negative ids break an invariant of samples.
    pub(super) fn out_of_range(&self, sample: &Sample) -> Option<String> {
        let (highest, whose) = match self {
            Self::Builtin(tokenizer) => {
                let size = i64::try_from(tokenizer.vocab_size()).unwrap_or(i64::MAX);
                (size - 1, "the highest of the built-in tokenizer")
            }
            Self::Opaque => (
                HIGHEST_ID,
                "the highest that any tokenizer is taken to have",
            ),
        };
        let mut ids = sample.tokens.iter().enumerate();
        let (place, id) = ids.find(|(_, id)| **id > highest)?;
        Some(format!(
            "the id at {place} is {id}, above {highest}, {whose}"
        ))
    }

    pub(super) fn text(&self, sample: &Sample) -> Text {
        let Self::Builtin(tokenizer) = self else {
            return Text::Unknown;
        };
        let decode = |ids: &[u32], skip_special| tokenizer.decode(ids, skip_special).ok();
        let Some(ids) = response_ids(sample) else {
            return Text::Unknown;
        };
        let (Some(spelled), Some(plain)) = (decode(&ids, false), decode(&ids, true)) else {
            return Text::Unknown;
        };
        let response = sample.response.as_str();
        if follows(&spelled, sample, response) {
            return Text::Same;
        }
        let is_special = |id: &&u32| decode(&[**id], true).is_some_and(|text| text.is_empty());
        let special = ids.iter().filter(is_special);
        let without_special = special
            .filter_map(|id| tokenizer.token_text(*id))
            .filter(|token| !token.is_empty())
            .fold(response.to_owned(), |text, token| text.replace(&token, ""));
        if follows(&plain, sample, &without_special) {
            return Text::Same;
        }
        let halved = spelled.trim_end_matches(REPLACEMENT).contains(REPLACEMENT);
        if halved || response.contains(REPLACEMENT) || sample.metadata.contains_key(GAPS) {
            return Text::Unknown;
        }
        Text::Differs(difference(&spelled, response))
    }
}

fn response_ids(sample: &Sample) -> Option<Vec<u32>> {
    let start = sample.tokens.len().checked_sub(sample.response_length)?;
    let ids = sample.tokens.get(start..)?;
    ids.iter().map(|id| u32::try_from(*id).ok()).collect()
}

/// Whether `response` is what an engine makes of this text.
fn follows(decoded: &str, sample: &Sample, response: &str) -> bool {
    let Some(cut) = decoded.strip_prefix(response) else {
        return false;
    };
    let may_be_stop = sample.status == SampleStatus::Completed && cut.len() <= LONGEST_STOP;
    may_be_stop || cut.chars().all(|character| character == REPLACEMENT)
}

fn difference(decoded: &str, response: &str) -> String {
    let same = decoded.chars().zip(response.chars());
    let place = same.take_while(|(left, right)| left == right).count();
    let near = |text: &str| text.chars().skip(place).take(20).collect::<String>();
    format!(
        "is not what its ids spell: from character {place} it says {:?}, they say {:?}",
        near(response),
        near(decoded)
    )
}
