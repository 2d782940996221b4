//! Lists of tokens with log-probabilities, read straight into vectors.

use super::{Pieces, ReplyError};
use crate::json::{Cursor, Kind};

/// Output tokens from one place of a reply. Places differ in what they carry.
#[derive(Debug, Default)]
pub(super) struct TokenRows {
    pub(super) ids: Option<Vec<u32>>,
    pub(super) log_probs: Vec<f64>,
    pub(super) pieces: Option<Pieces>,
}

fn log_prob(cursor: &mut Cursor<'_>, index: usize) -> Result<f64, ReplyError> {
    if cursor.null()? {
        return Err(ReplyError::NullLogProb(index));
    }
    Ok(cursor.f64()?)
}

/// Reads `[[log-probability, token id, text or null], ...]`.
pub(super) fn triples(cursor: &mut Cursor<'_>) -> Result<TokenRows, ReplyError> {
    let mut ids = Vec::new();
    let mut log_probs = Vec::new();
    let mut pieces = Some(Pieces::default());
    cursor.array::<ReplyError>(|index, row| {
        let mut fields = 0;
        let mut has_text = false;
        row.array::<ReplyError>(|field, value| {
            fields += 1;
            match field {
                0 => log_probs.push(log_prob(value, index)?),
                1 => ids.push(value.id()?),
                2 if value.kind()? == Kind::String => {
                    has_text = true;
                    push_text(&mut pieces, value)?;
                }
                _ => value.skip()?,
            }
            Ok(())
        })?;
        if fields < 2 {
            return Err(ReplyError::NoOutputIds);
        }
        if !has_text {
            pieces = None;
        }
        Ok(())
    })?;
    Ok(TokenRows {
        ids: Some(ids),
        log_probs,
        pieces,
    })
}

/// Adds the text of a token, while every token so far had one.
fn push_text(pieces: &mut Option<Pieces>, value: &mut Cursor<'_>) -> Result<(), ReplyError> {
    let text = value.string()?;
    if let Some(pieces) = pieces {
        pieces.push(&text);
    }
    Ok(())
}

/// Reads the `content` list of OpenAI's `logprobs` object; `token_id` only exists in Miles's fork.
pub(super) fn openai_content(cursor: &mut Cursor<'_>) -> Result<TokenRows, ReplyError> {
    let mut ids = Some(Vec::new());
    let mut log_probs = Vec::new();
    let mut pieces = Some(Pieces::default());
    cursor.array::<ReplyError>(|index, entry| {
        let mut id = None;
        let mut has_text = false;
        let before = log_probs.len();
        entry.object::<ReplyError>(|key, value| {
            match key.name.as_ref() {
                "logprob" => log_probs.push(log_prob(value, index)?),
                "token_id" if value.kind()? == Kind::Number => id = Some(value.id()?),
                "token" if value.kind()? == Kind::String => {
                    has_text = true;
                    push_text(&mut pieces, value)?;
                }
                _ => value.skip()?,
            }
            Ok(())
        })?;
        if log_probs.len() != before + 1 {
            return Err(ReplyError::NullLogProb(index));
        }
        ids = match (ids.take(), id) {
            (Some(mut ids), Some(id)) => {
                ids.push(id);
                Some(ids)
            }
            _ => None,
        };
        if !has_text {
            pieces = None;
        }
        Ok(())
    })?;
    Ok(TokenRows {
        ids,
        log_probs,
        pieces,
    })
}
