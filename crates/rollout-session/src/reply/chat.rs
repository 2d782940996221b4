//! Replies of `/v1/chat/completions`, not streamed.

use std::ops::Range;

use super::meta::{MetaInfo, REPLAY_FIELDS, Spans, payload};
use super::tokens::{TokenRows, openai_content};
use super::{FinishReason, Generation, KnownPrompt, ReplayPayload, ReplyError};
use crate::json::edit::{FieldCuts, without};
use crate::json::{Cursor, Kind};

/// A checked chat reply: the generation, and where in the body the parts lie that others need.
#[derive(Debug)]
pub struct ChatReply {
    /// What is recorded.
    pub generation: Generation,
    /// The assistant's message.
    pub message: Range<usize>,
    prompt_list: Option<Range<usize>>,
    replay: Vec<Range<usize>>,
    stored: Vec<Range<usize>>,
}

impl ChatReply {
    /// Reads and checks a reply. `input_ids` are the prompt's ids when the request carried them; `known` is a prompt that this one may
    /// begin with.
    ///
    /// # Errors
    /// Says what is missing or contradicts itself; nothing of such a reply may be recorded.
    pub fn parse(
        body: &[u8],
        input_ids: Option<&[u32]>,
        known: Option<KnownPrompt>,
    ) -> Result<Self, ReplyError> {
        let mut cursor = Cursor::of_bytes(body)?;
        let mut parts = Parts {
            known,
            ..Parts::default()
        };
        let mut spans = Spans::default();
        cursor.object::<ReplyError>(|key, value| match key.name.as_ref() {
            "choices" if value.kind()? == Kind::Array => {
                value.array::<ReplyError>(|index, choice| {
                    parts.choices += 1;
                    if index == 0 {
                        parts.choice(choice, &mut spans)
                    } else {
                        Ok(choice.skip()?)
                    }
                })
            }
            "usage" if value.kind()? == Kind::Object => parts.usage(value),
            "metadata" if value.kind()? == Kind::Object => parts.metadata(value),
            "sglext" if value.kind()? == Kind::Object => {
                parts.extension = extension(value, &mut spans)?;
                Ok(())
            }
            _ => Ok(value.skip()?),
        })?;
        cursor.finish()?;
        spans.replay.sort_by_key(|cut| cut.start);
        spans.stored.sort_by_key(|cut| cut.start);
        match parts.choices {
            0 => return Err(ReplyError::NoChoice),
            1 => {}
            many => return Err(ReplyError::ManyChoices(many)),
        }
        let text = std::str::from_utf8(body).unwrap_or_default();
        let message = parts.message.clone();
        let prompt_list = parts.prompt_list.clone();
        let generation = parts.check(text, input_ids)?;
        Ok(Self {
            generation,
            message,
            prompt_list,
            replay: spans.replay,
            stored: spans.stored,
        })
    }

    /// The list of prompt ids as the engine wrote it, without brackets.
    pub fn prompt_text<'a>(&self, body: &'a [u8]) -> Option<&'a str> {
        let list = body.get(self.prompt_list.clone()?)?;
        let inner = std::str::from_utf8(list).ok()?;
        let inner = inner.strip_prefix('[')?.strip_suffix(']')?;
        (!inner.is_empty()).then_some(inner)
    }

    /// The body for the client: without replay payloads. `None` when it is the engine's, byte for byte.
    pub fn client_body(&self, body: &[u8]) -> Option<Vec<u8>> {
        (!self.replay.is_empty()).then(|| without(body, &self.replay))
    }

    /// The body for the record: without what [`Generation`] holds in binary form.
    pub fn record_body(&self, body: &[u8]) -> Vec<u8> {
        without(body, &self.stored)
    }
}

/// `sglext` of newer engines repeats ids and payloads.
fn extension(cursor: &mut Cursor<'_>, spans: &mut Spans) -> Result<Extension, ReplyError> {
    let mut extension = Extension::default();
    let mut replay = FieldCuts::default();
    let mut stored = FieldCuts::default();
    cursor.object::<ReplyError>(|key, value| {
        let name = key.name.as_ref();
        match name {
            "routed_experts" => extension.routed_experts = payload(value)?,
            "indexer_topk" => extension.indexer_topk = payload(value)?,
            _ => value.skip()?,
        }
        let span = key.start..value.position();
        let is_replay = REPLAY_FIELDS.contains(&name);
        replay.field(span.clone(), is_replay, &mut spans.replay);
        let is_stored = is_replay || matches!(name, "input_ids" | "output_ids");
        stored.field(span, is_stored, &mut spans.stored);
        Ok(())
    })?;
    replay.end(&mut spans.replay);
    stored.end(&mut spans.stored);
    Ok(extension)
}

#[derive(Debug, Default)]
struct Extension {
    routed_experts: Option<ReplayPayload>,
    indexer_topk: Option<ReplayPayload>,
}

#[derive(Debug, Default)]
struct Parts {
    extension: Extension,
    choices: usize,
    message: Range<usize>,
    content_is_null: bool,
    calls_tools: bool,
    finish: Option<FinishReason>,
    known: Option<KnownPrompt>,
    prompt_list: Option<Range<usize>>,
    prompt_ids: Option<Vec<u32>>,
    response_ids: Option<Vec<u32>>,
    openai_log_probs: Option<Range<usize>>,
    meta: MetaInfo,
    usage_completion: Option<i64>,
    usage_prompt: Option<i64>,
    weight_version: Option<String>,
}

impl Parts {
    fn choice(&mut self, cursor: &mut Cursor<'_>, spans: &mut Spans) -> Result<(), ReplyError> {
        let mut stored = FieldCuts::default();
        cursor.object::<ReplyError>(|key, value| {
            let name = key.name.as_ref();
            let kind = value.kind()?;
            let mut inner = Vec::new();
            match (name, kind) {
                ("message", Kind::Object) => self.message(value)?,
                ("finish_reason", Kind::String) => {
                    self.finish = Some(FinishReason::parse(&value.string()?));
                }
                ("prompt_token_ids", Kind::Array) => self.prompt(value)?,
                ("response_token_ids", Kind::Array) => self.response_ids = Some(value.ids()?),
                ("logprobs", Kind::Object) => self.openai_log_probs = Some(value.span()?),
                ("meta_info", Kind::Object) => {
                    let mut nested = Spans::default();
                    self.meta = MetaInfo::read(value, &mut nested)?;
                    spans.replay.append(&mut nested.replay);
                    inner = nested.stored;
                }
                _ => value.skip()?,
            }
            let cut = matches!(name, "prompt_token_ids" | "response_token_ids" | "logprobs");
            stored.field(key.start..value.position(), cut, &mut spans.stored);
            spans.stored.append(&mut inner);
            Ok(())
        })?;
        stored.end(&mut spans.stored);
        Ok(())
    }

    fn prompt(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReplyError> {
        let start = cursor.position();
        let begun = match self.known.take() {
            Some(KnownPrompt { text, ids }) => cursor.ids_after(&text, ids)?,
            None => None,
        };
        let ids = match begun {
            Some(ids) => ids,
            None => cursor.ids()?,
        };
        self.prompt_ids = Some(ids);
        self.prompt_list = Some(start..cursor.position());
        Ok(())
    }

    fn message(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReplyError> {
        let start = cursor.position();
        self.content_is_null = true;
        cursor.object::<ReplyError>(|key, value| {
            match key.name.as_ref() {
                "content" => self.content_is_null = value.kind()? == Kind::Null,
                "tool_calls" => self.calls_tools = value.kind()? == Kind::Array,
                _ => {}
            }
            Ok(value.skip()?)
        })?;
        self.message = start..cursor.position();
        Ok(())
    }

    fn usage(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReplyError> {
        cursor.object::<ReplyError>(|key, value| {
            match (key.name.as_ref(), value.kind()?) {
                ("completion_tokens", Kind::Number) => self.usage_completion = Some(value.i64()?),
                ("prompt_tokens", Kind::Number) => self.usage_prompt = Some(value.i64()?),
                _ => value.skip()?,
            }
            Ok(())
        })
    }

    fn metadata(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReplyError> {
        cursor.object::<ReplyError>(|key, value| {
            if key.name == "weight_version" && value.kind()? == Kind::String {
                self.weight_version = Some(value.string()?.into_owned());
            } else {
                value.skip()?;
            }
            Ok(())
        })
    }

    /// The second look at `logprobs`, only when `meta_info` does not say everything.
    fn openai_rows(&self, text: &str) -> Result<Option<TokenRows>, ReplyError> {
        let Some(span) = &self.openai_log_probs else {
            return Ok(None);
        };
        let mut rows = None;
        Cursor::within(text, span).object::<ReplyError>(|key, value| {
            if key.name == "content" && value.kind()? == Kind::Array {
                rows = Some(openai_content(value)?);
            } else {
                value.skip()?;
            }
            Ok(())
        })?;
        Ok(rows)
    }

    fn check(mut self, text: &str, input_ids: Option<&[u32]>) -> Result<Generation, ReplyError> {
        let meta_rows = self.meta.rows.take();
        let complete = meta_rows.as_ref().is_some_and(|rows| rows.pieces.is_some());
        let openai = if complete {
            None
        } else {
            self.openai_rows(text)?
        };
        let (ids, log_probs, pieces) = output_tokens(meta_rows, self.response_ids.take(), openai)?;
        if self.content_is_null && !self.calls_tools {
            return Err(ReplyError::NoContent);
        }
        let completion_tokens = self.meta.completion_tokens.or(self.usage_completion);
        check_output_count(log_probs.len(), ids.len(), completion_tokens)?;
        let prompt_ids = check_prompt(self.prompt_ids.take(), input_ids)?;
        // An aborted request has thin counters.
        let aborted = self.finish == Some(FinishReason::Abort);
        let usage_prompt = self.usage_prompt.filter(|_| !aborted);
        check_prompt_count(prompt_ids.len(), self.meta.prompt_tokens.or(usage_prompt))?;
        Ok(Generation {
            prompt_tokens: i64::try_from(prompt_ids.len()).unwrap_or(i64::MAX),
            prompt_ids,
            output_ids: ids,
            log_probs,
            pieces,
            finish: self.finish.or(self.meta.finish.take()),
            cached_tokens: self.meta.cached_tokens,
            spec: self.meta.speculation(),
            engine_seconds: self.meta.engine_seconds,
            weight_version: self.meta.weight_version.or(self.weight_version),
            routed_experts: self.meta.routed_experts.or(self.extension.routed_experts),
            indexer_topk: self.meta.indexer_topk.or(self.extension.indexer_topk),
            indexer_layers: self.meta.indexer_layers,
        })
    }
}

type Output = (Vec<u32>, Vec<f64>, Option<super::Pieces>);

/// Ids come from the first place that has them; every other place must say the same.
fn output_tokens(
    meta: Option<TokenRows>,
    response_ids: Option<Vec<u32>>,
    openai: Option<TokenRows>,
) -> Result<Output, ReplyError> {
    let mut openai = openai;
    let (meta_ids, meta_log_probs, meta_pieces) = match meta {
        Some(rows) => (rows.ids, Some(rows.log_probs), rows.pieces),
        None => (None, None, None),
    };
    let openai_ids = openai.as_mut().and_then(|rows| rows.ids.take());
    let places = [
        ("meta_info.output_token_logprobs", meta_ids),
        ("response_token_ids", response_ids),
        ("logprobs.content[*].token_id", openai_ids),
    ];
    let mut chosen: Option<(&'static str, Vec<u32>)> = None;
    for (name, ids) in places {
        match (&chosen, ids) {
            (None, Some(ids)) => chosen = Some((name, ids)),
            (Some((first, expected)), Some(ids)) if *expected != ids => {
                return Err(ReplyError::Disagree {
                    left: first,
                    right: name,
                });
            }
            _ => {}
        }
    }
    let (openai_log_probs, openai_pieces) =
        openai.map_or((None, None), |rows| (Some(rows.log_probs), rows.pieces));
    let Some(log_probs) = meta_log_probs.or(openai_log_probs) else {
        return Err(ReplyError::NoLogProbs);
    };
    let Some((_, ids)) = chosen else {
        return Err(ReplyError::NoOutputIds);
    };
    let pieces = meta_pieces
        .or(openai_pieces)
        .filter(|pieces| pieces.len() == ids.len());
    Ok((ids, log_probs, pieces))
}

pub(super) fn check_output_count(
    rows: usize,
    ids: usize,
    completion_tokens: Option<i64>,
) -> Result<(), ReplyError> {
    let completion_tokens =
        completion_tokens.unwrap_or_else(|| i64::try_from(ids).unwrap_or(i64::MAX));
    let agrees = i64::try_from(rows).is_ok_and(|rows| rows == completion_tokens) && rows == ids;
    if agrees {
        Ok(())
    } else {
        Err(ReplyError::OutputCount {
            rows,
            completion_tokens,
        })
    }
}

pub(super) fn check_prompt(
    replied: Option<Vec<u32>>,
    sent: Option<&[u32]>,
) -> Result<Vec<u32>, ReplyError> {
    match (replied, sent) {
        (Some(replied), Some(sent)) if replied != sent => Err(ReplyError::Disagree {
            left: "input_ids of the request",
            right: "prompt_token_ids",
        }),
        (Some(replied), _) => Ok(replied),
        (None, Some(sent)) => Ok(sent.to_vec()),
        (None, None) => Err(ReplyError::NoPromptIds),
    }
}

pub(super) fn check_prompt_count(ids: usize, counted: Option<i64>) -> Result<(), ReplyError> {
    match counted {
        Some(prompt_tokens) if i64::try_from(ids) != Ok(prompt_tokens) => {
            Err(ReplyError::PromptCount { ids, prompt_tokens })
        }
        _ => Ok(()),
    }
}
