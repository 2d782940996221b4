//! `meta_info`: the counters of one engine call.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::tokens::{TokenRows, triples};
use super::{FinishReason, ReplayPayload, ReplyError};
use crate::json::edit::FieldCuts;
use crate::json::{Cursor, Kind};
use crate::sample::SpecInfo;

/// Payloads for the trainer's routing replay. They can be tens of megabytes and mean nothing to an agent.
pub(super) const REPLAY_FIELDS: [&str; 2] = ["routed_experts", "indexer_topk"];

/// What is read of a `meta_info` object; all of it is optional (an aborted request has a thin one).
#[derive(Debug, Default)]
pub(super) struct MetaInfo {
    pub(super) rows: Option<TokenRows>,
    pub(super) finish: Option<FinishReason>,
    pub(super) prompt_tokens: Option<i64>,
    pub(super) completion_tokens: Option<i64>,
    pub(super) cached_tokens: i64,
    pub(super) weight_version: Option<String>,
    pub(super) engine_seconds: Option<f64>,
    pub(super) spec: SpecInfo,
    pub(super) routed_experts: Option<ReplayPayload>,
    pub(super) indexer_topk: Option<ReplayPayload>,
    pub(super) indexer_layers: Option<usize>,
}

/// Reads a payload: base64 of 32-bit integers. One that cannot be read costs its rows, not the turn.
pub(super) fn payload(value: &mut Cursor<'_>) -> Result<Option<ReplayPayload>, ReplyError> {
    match value.kind()? {
        Kind::Null => {
            value.skip()?;
            Ok(None)
        }
        Kind::String => {
            let text = value.string()?;
            Ok(Some(match STANDARD.decode(text.as_bytes()) {
                Ok(bytes) if bytes.len().is_multiple_of(size_of::<i32>()) => {
                    ReplayPayload::Rows(bytes)
                }
                Ok(_) => ReplayPayload::Broken("is not a whole number of 32-bit integers"),
                Err(_) => ReplayPayload::Broken("is not base64"),
            }))
        }
        _ => {
            value.skip()?;
            Ok(Some(ReplayPayload::Broken("is not a text")))
        }
    }
}

/// Where bulky fields lie.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// Replay payloads: cut from what the client gets.
    pub(super) replay: Vec<Range<usize>>,
    /// What is stored in another form: cut from the record.
    pub(super) stored: Vec<Range<usize>>,
}

impl MetaInfo {
    pub(super) fn read(cursor: &mut Cursor<'_>, spans: &mut Spans) -> Result<Self, ReplyError> {
        let mut meta = Self::default();
        let mut replay = FieldCuts::default();
        let mut stored = FieldCuts::default();
        cursor.object::<ReplyError>(|key, value| {
            let name = key.name.as_ref();
            meta.field(name, value)?;
            let span = key.start..value.position();
            let is_replay = REPLAY_FIELDS.contains(&name);
            let is_stored = is_replay || name.ends_with("_token_logprobs");
            replay.field(span.clone(), is_replay, &mut spans.replay);
            stored.field(span, is_stored, &mut spans.stored);
            Ok(())
        })?;
        replay.end(&mut spans.replay);
        stored.end(&mut spans.stored);
        Ok(meta)
    }

    fn field(&mut self, name: &str, value: &mut Cursor<'_>) -> Result<(), ReplyError> {
        let kind = value.kind()?;
        match (name, kind) {
            ("output_token_logprobs", Kind::Array) => self.rows = Some(triples(value)?),
            ("finish_reason", Kind::Object) => value.object::<ReplyError>(|key, value| {
                if key.name == "type" && value.kind()? == Kind::String {
                    self.finish = Some(FinishReason::parse(&value.string()?));
                } else {
                    value.skip()?;
                }
                Ok(())
            })?,
            ("prompt_tokens", Kind::Number) => self.prompt_tokens = Some(value.i64()?),
            ("completion_tokens", Kind::Number) => {
                let count = value.i64()?;
                self.completion_tokens = Some(count);
                self.spec.completion_token_num = count;
            }
            ("cached_tokens", Kind::Number) => self.cached_tokens = value.i64()?,
            ("routed_experts", _) => self.routed_experts = payload(value)?,
            ("indexer_topk", _) => self.indexer_topk = payload(value)?,
            ("indexer_topk_num_layers", Kind::Number) => {
                self.indexer_layers = usize::try_from(value.i64()?).ok();
            }
            ("weight_version", Kind::String) => {
                self.weight_version = Some(value.string()?.into_owned());
            }
            ("e2e_latency", Kind::Number) => self.engine_seconds = Some(value.f64()?),
            ("spec_accept_token_num", Kind::Number) => {
                self.spec.spec_accept_token_num = value.i64()?;
            }
            ("spec_draft_token_num", Kind::Number) => {
                self.spec.spec_draft_token_num = value.i64()?;
            }
            ("spec_verify_ct", Kind::Number) => self.spec.spec_verify_ct = value.i64()?,
            _ => value.skip()?,
        }
        Ok(())
    }

    /// The counters only mean something when the engine speculates.
    pub(super) fn speculation(&self) -> SpecInfo {
        if self.spec.spec_verify_ct == 0 && self.spec.spec_draft_token_num == 0 {
            return SpecInfo::default();
        }
        self.spec
    }
}
