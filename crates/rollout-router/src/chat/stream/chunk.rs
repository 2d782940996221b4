//! One event of an engine's chat stream.

use std::ops::Range;

use rollout_session::ReplyError;
use rollout_session::json::{Cursor, Kind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What a delta adds to the message.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    pub(super) role: Option<String>,
    #[serde(default)]
    pub(super) content: Option<String>,
    #[serde(default)]
    pub(super) reasoning_content: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<Map<String, Value>>>,
}

impl Delta {
    /// Whether it adds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.role.is_none()
            && self.content.is_none()
            && self.reasoning_content.is_none()
            && self.tool_calls.as_ref().is_none_or(Vec::is_empty)
    }
}

/// An event in its parts. Texts are JSON as the engine wrote it.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    text: &'a str,
    pub(super) id: Option<&'a str>,
    pub(super) created: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) delta: Delta,
    pub(super) finish_reason: Option<&'a str>,
    pub(super) matched_stop: Option<&'a str>,
    log_probs: Option<Range<usize>>,
    content: Option<Range<usize>>,
    has_other_content: bool,
    /// Entries of `logprobs.content`, without brackets.
    pub(super) entries: Option<&'a str>,
    pub(super) usage: Option<&'a str>,
    pub(super) extension: Extension<'a>,
}

/// SGLang's own part of an event.
#[derive(Debug, Default)]
pub(super) struct Extension<'a> {
    pub(super) prompt_ids: Option<&'a str>,
    pub(super) output_ids: Option<&'a str>,
    /// Prompt tokens that were found in a cache.
    pub(super) cached_tokens: Option<i64>,
    pub(super) speculation: Option<Speculation>,
}

/// Counters of speculative decoding.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Speculation {
    #[serde(default, rename = "spec_num_correct_drafts")]
    pub(super) accepted: i64,
    #[serde(default, rename = "spec_num_proposed_drafts")]
    pub(super) proposed: i64,
    #[serde(default, rename = "spec_verify_ct")]
    pub(super) verified: i64,
}

impl<'a> Chunk<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, ReplyError> {
        let mut chunk = Self {
            text,
            ..Self::default()
        };
        let mut cursor = Cursor::new(text);
        cursor.object::<ReplyError>(|key, value| {
            match (key.name.as_ref(), value.kind()?) {
                ("error", Kind::Object | Kind::String) => chunk.error = Some(raw(text, value)?),
                ("id", _) => chunk.id = Some(raw(text, value)?),
                ("created", _) => chunk.created = Some(raw(text, value)?),
                ("model", _) => chunk.model = Some(raw(text, value)?),
                ("usage", Kind::Object) => chunk.usage = Some(raw(text, value)?),
                ("sglext", Kind::Object) => chunk.extension = Extension::read(text, value)?,
                ("choices", Kind::Array) => value.array::<ReplyError>(|index, choice| {
                    if index > 0 {
                        return Err(ReplyError::ManyChoices(index + 1));
                    }
                    chunk.choice(choice)
                })?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        cursor.finish()?;
        Ok(chunk)
    }

    fn choice(&mut self, choice: &mut Cursor<'a>) -> Result<(), ReplyError> {
        let text = self.text;
        choice.object::<ReplyError>(|key, value| {
            match (key.name.as_ref(), value.kind()?) {
                ("index", Kind::Number) => {
                    let index = value.i64()?;
                    if index != 0 {
                        let choices = usize::try_from(index).unwrap_or_default() + 1;
                        return Err(ReplyError::ManyChoices(choices));
                    }
                }
                ("delta", Kind::Object) => {
                    let span = value.span()?;
                    let delta = text.get(span.clone()).unwrap_or_default();
                    self.delta = serde_json::from_str(delta)
                        .map_err(|_| wrong("a delta of a message", span.start))?;
                    Cursor::within(text, &span).object::<ReplyError>(|key, value| {
                        let span = value.span()?;
                        if key.name == "content" {
                            self.content = Some(span);
                        }
                        Ok(())
                    })?;
                }
                ("finish_reason", Kind::String) => self.finish_reason = Some(raw(text, value)?),
                ("matched_stop", Kind::String | Kind::Number) => {
                    self.matched_stop = Some(raw(text, value)?);
                }
                ("logprobs", Kind::Object) => {
                    let start = value.position();
                    value.object::<ReplyError>(|key, value| {
                        if key.name == "content" && value.kind()? == Kind::Array {
                            self.entries = Some(within_brackets(raw(text, value)?));
                            return Ok(());
                        }
                        Ok(value.skip()?)
                    })?;
                    self.log_probs = Some(start..value.position());
                }
                _ => value.skip()?,
            }
            Ok(())
        })
    }

    /// Whether a client has any use for the event.
    pub(super) fn says_something(&self) -> bool {
        !self.delta.is_empty()
    }

    /// Gives the delta another content.
    pub(super) fn set_content(&mut self, content: Option<String>) {
        if self.delta.content != content {
            self.delta.content = content;
            self.has_other_content = true;
        }
    }

    /// The event for a client: as it is, but for another content, and for log-probabilities that nobody asked for.
    pub(super) fn for_client(&self, with_log_probs: bool) -> String {
        let content = self.content.clone().filter(|_| self.has_other_content);
        let content = content.map(|span| (span, json!(self.delta.content).to_string()));
        let log_probs = self.log_probs.clone().filter(|_| !with_log_probs);
        let log_probs = log_probs.map(|span| (span, "null".to_owned()));
        let mut edits: Vec<(Range<usize>, String)> = content.into_iter().chain(log_probs).collect();
        edits.sort_by_key(|(span, _)| span.start);
        let mut event = String::with_capacity(self.text.len() + 8);
        event.push_str("data: ");
        let mut at = 0;
        for (span, instead) in edits {
            event.push_str(self.text.get(at..span.start).unwrap_or_default());
            event.push_str(&instead);
            at = span.end;
        }
        event.push_str(self.text.get(at..).unwrap_or_default());
        event.push_str("\n\n");
        event
    }
}

impl<'a> Extension<'a> {
    fn read(text: &'a str, extension: &mut Cursor<'a>) -> Result<Self, ReplyError> {
        let mut read = Self::default();
        extension.object::<ReplyError>(|key, value| {
            match (key.name.as_ref(), value.kind()?) {
                ("input_ids", Kind::Array) => read.prompt_ids = Some(raw(text, value)?),
                // A list for each choice.
                ("output_ids", Kind::Array) => value.array::<ReplyError>(|_, ids| {
                    read.output_ids = Some(raw(text, ids)?);
                    Ok(())
                })?,
                ("cached_tokens_details", Kind::Object) => {
                    let mut sum = 0_i64;
                    value.object::<ReplyError>(|_, place| {
                        if place.kind()? == Kind::Number {
                            sum = sum.saturating_add(place.i64()?);
                            return Ok(());
                        }
                        Ok(place.skip()?)
                    })?;
                    read.cached_tokens = Some(sum);
                }
                ("spec_tokens_details", Kind::Object) => {
                    read.speculation = serde_json::from_str(raw(text, value)?).ok();
                }
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(read)
    }
}

fn raw<'a>(text: &'a str, value: &mut Cursor<'a>) -> Result<&'a str, ReplyError> {
    let span = value.span()?;
    Ok(text.get(span).unwrap_or_default())
}

fn within_brackets(list: &str) -> &str {
    let inner = list.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.unwrap_or_default().trim()
}

fn wrong(expected: &'static str, offset: usize) -> ReplyError {
    rollout_session::json::JsonError { expected, offset }.into()
}
