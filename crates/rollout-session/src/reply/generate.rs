//! Replies of `/generate`, not streamed, for one prompt.

use super::chat::{check_output_count, check_prompt, check_prompt_count};
use super::meta::{MetaInfo, Spans};
use super::{Generation, ReplyError};
use crate::json::edit::without;
use crate::json::{Cursor, Kind};

/// A checked reply of `/generate`.
#[derive(Debug)]
pub struct GenerateReply {
    /// What is recorded.
    pub generation: Generation,
    spans: Spans,
}

/// Whether a body of `/generate` is the answer to a batch.
pub fn looks_like_batch(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

impl GenerateReply {
    /// Reads and checks a reply. `input_ids` are the prompt's ids when the request carried them.
    ///
    /// # Errors
    /// Says what is missing or contradicts itself; nothing of such a reply may be recorded.
    pub fn parse(body: &[u8], input_ids: Option<&[u32]>) -> Result<Self, ReplyError> {
        let mut cursor = Cursor::of_bytes(body)?;
        let mut prompt_ids = None;
        let mut output_ids = None;
        let mut meta = MetaInfo::default();
        let mut spans = Spans::default();
        cursor.object::<ReplyError>(|key, value| {
            match (key.name.as_ref(), value.kind()?) {
                ("output_ids", Kind::Array) => output_ids = Some(value.ids()?),
                ("prompt_token_ids", Kind::Array) => prompt_ids = Some(value.ids()?),
                ("meta_info", Kind::Object) => meta = MetaInfo::read(value, &mut spans)?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        cursor.finish()?;
        let Some(rows) = meta.rows.take() else {
            return Err(ReplyError::NoLogProbs);
        };
        let ids = rows.ids.unwrap_or_default();
        if output_ids.is_some_and(|output_ids| output_ids != ids) {
            return Err(ReplyError::Disagree {
                left: "meta_info.output_token_logprobs",
                right: "output_ids",
            });
        }
        check_output_count(rows.log_probs.len(), ids.len(), meta.completion_tokens)?;
        let prompt_ids = check_prompt(prompt_ids, input_ids)?;
        check_prompt_count(prompt_ids.len(), meta.prompt_tokens)?;
        let pieces = rows.pieces.filter(|pieces| pieces.len() == ids.len());
        let generation = Generation {
            prompt_tokens: i64::try_from(prompt_ids.len()).unwrap_or(i64::MAX),
            prompt_ids,
            output_ids: ids,
            log_probs: rows.log_probs,
            pieces,
            finish: meta.finish.take(),
            cached_tokens: meta.cached_tokens,
            spec: meta.speculation(),
            engine_seconds: meta.engine_seconds,
            weight_version: meta.weight_version.take(),
            routed_experts: meta.routed_experts.take(),
            indexer_topk: meta.indexer_topk.take(),
            indexer_layers: meta.indexer_layers,
        };
        Ok(Self { generation, spans })
    }

    /// The body for the client: without replay payloads. `None` when it is the engine's, byte for byte.
    pub fn client_body(&self, body: &[u8]) -> Option<Vec<u8>> {
        (!self.spans.replay.is_empty()).then(|| without(body, &self.spans.replay))
    }

    /// The body for the record: without what [`Generation`] holds in binary form.
    pub fn record_body(&self, body: &[u8]) -> Vec<u8> {
        without(body, &self.spans.stored)
    }
}
