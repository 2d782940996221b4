//! How far the ids of a session are from those that its messages would be tokenized to today.
//!
//! A session's ids are what engines produced, never tokenized again. A render of the whole conversation may differ: a parser that
//! normalized a call, a template that drops reasoning. None of it is an error in the ids; all of it is worth knowing.
//!
//! Both sequences are cut into segments at special tokens, and compared segment by segment. Texts are compared, not ids: two ways to
//! tokenize one text are no mismatch.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{Rules, Tokenizer, TokenizerError};

/// What kind of difference it is; the names are those of Miles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchKind {
    /// The sequences have other numbers or another order of special tokens and texts.
    SpecialTokenCount,
    /// Another special token at the same place.
    SpecialTokenType,
    /// Another text where no assistant speaks.
    NonAssistantText,
    /// Another text where an assistant speaks.
    AssistantText,
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// What kind it is.
    #[serde(rename = "type")]
    pub kind: MismatchKind,
    /// The segment, from 0; -1 if the sequences are cut differently.
    pub segment_index: i64,
    /// What the messages render to.
    pub expected_text: String,
    /// What the session has.
    pub actual_text: String,
    /// More words, if there are some.
    pub detail: String,
}

/// How many ids after a special token are looked at for the start of an assistant's message.
const START_IDS: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Segment<'a> {
    Special(u32),
    Content(&'a [u32]),
}

/// Compares the ids that the messages render to with those of the session.
///
/// # Errors
/// Ids cannot be decoded.
pub fn mismatches(
    tokenizer: &Tokenizer,
    rules: &Rules,
    expected: &[u32],
    actual: &[u32],
) -> Result<Vec<Mismatch>, TokenizerError> {
    let specials: BTreeSet<u32> = match rules.specials {
        Some(tokens) => tokens
            .iter()
            .filter_map(|token| tokenizer.token_id(token))
            .collect(),
        None => tokenizer.special_ids().into_iter().collect(),
    };
    let mut trailing = BTreeSet::new();
    for text in rules.trailing {
        // A line break is a token of the model, not an added one: it is found by encoding it.
        match tokenizer.token_id(text) {
            Some(id) => {
                trailing.insert(id);
            }
            None => {
                if let [id] = tokenizer.encode(text)?.as_slice() {
                    trailing.insert(*id);
                }
            }
        }
    }
    let expected = segments(without(expected, &trailing), &specials);
    let actual = segments(without(actual, &trailing), &specials);
    let pattern = |segments: &[Segment<'_>]| -> Vec<bool> {
        segments
            .iter()
            .map(|segment| matches!(segment, Segment::Special(_)))
            .collect()
    };
    if pattern(&expected) != pattern(&actual) {
        return Ok(vec![Mismatch {
            kind: MismatchKind::SpecialTokenCount,
            segment_index: -1,
            expected_text: structure(tokenizer, &expected),
            actual_text: structure(tokenizer, &actual),
            detail: format!("expected {} segments, got {}", expected.len(), actual.len()),
        }]);
    }
    let mut found = Vec::new();
    for (index, (left, right)) in expected.iter().zip(&actual).enumerate() {
        let kind = match (left, right) {
            _ if left == right => continue,
            (Segment::Special(_), _) | (_, Segment::Special(_)) => MismatchKind::SpecialTokenType,
            (Segment::Content(_), Segment::Content(_)) => {
                let speaks = |segments| is_assistant(tokenizer, rules, segments, index);
                if speaks(&expected)? && speaks(&actual)? {
                    MismatchKind::AssistantText
                } else {
                    MismatchKind::NonAssistantText
                }
            }
        };
        let expected_text = text(tokenizer, *left)?;
        let actual_text = text(tokenizer, *right)?;
        if kind == MismatchKind::SpecialTokenType || expected_text != actual_text {
            found.push(Mismatch {
                kind,
                segment_index: i64::try_from(index).unwrap_or(i64::MAX),
                expected_text,
                actual_text,
                detail: String::new(),
            });
        }
    }
    Ok(found)
}

fn without<'a>(ids: &'a [u32], trailing: &BTreeSet<u32>) -> &'a [u32] {
    let kept = ids
        .iter()
        .rposition(|id| !trailing.contains(id))
        .map_or(0, |last| last + 1);
    &ids[..kept]
}

fn segments<'a>(ids: &'a [u32], specials: &BTreeSet<u32>) -> Vec<Segment<'a>> {
    let mut segments = Vec::new();
    for run in ids.chunk_by(|left, right| !specials.contains(left) && !specials.contains(right)) {
        match run {
            [id] if specials.contains(id) => segments.push(Segment::Special(*id)),
            content => segments.push(Segment::Content(content)),
        }
    }
    segments
}

fn text(tokenizer: &Tokenizer, segment: Segment<'_>) -> Result<String, TokenizerError> {
    match segment {
        Segment::Special(id) => tokenizer.decode(&[id], false),
        Segment::Content(ids) => tokenizer.decode(ids, false),
    }
}

/// Whether the special token before the segment, and the segment's beginning, open an assistant's message.
fn is_assistant(
    tokenizer: &Tokenizer,
    rules: &Rules,
    segments: &[Segment<'_>],
    index: usize,
) -> Result<bool, TokenizerError> {
    let Some(start) = rules.assistant_start else {
        return Ok(false);
    };
    let before = index.checked_sub(1).and_then(|index| segments.get(index));
    let (Some(Segment::Special(special)), Some(Segment::Content(ids))) =
        (before, segments.get(index))
    else {
        return Ok(false);
    };
    let opening = tokenizer.decode(&[*special], false)?
        + &tokenizer.decode(&ids[..ids.len().min(START_IDS)], false)?;
    Ok(opening.starts_with(start))
}

fn structure(tokenizer: &Tokenizer, segments: &[Segment<'_>]) -> String {
    let parts: Vec<String> = segments
        .iter()
        .map(|segment| match segment {
            Segment::Special(id) => tokenizer
                .token_text(*id)
                .unwrap_or_else(|| format!("<{id}>")),
            Segment::Content(ids) => format!("[{} tokens]", ids.len()),
        })
        .collect();
    parts.join(" ")
}
