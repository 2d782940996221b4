//! What differs between the ways in which a turn can be asked for.

use bytes::Bytes;
use http::uri::PathAndQuery;
use rollout_session::{ChatReply, GenerateReply, Generation, KnownPrompt, ReplyError};

use super::stream::StreamOptions;
use crate::edit::chat::{Budget, ChatRequest, Recording};
use crate::edit::generate::GenerateRequest;
use crate::edit::sampling::Sampling;
use crate::error::ApiError;
use crate::id::HexId;

/// The dialect of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's chat completions.
    Chat,
    /// SGLang's `/generate`.
    Generate,
}

impl Dialect {
    pub(super) fn path(self) -> PathAndQuery {
        match self {
            Self::Chat => PathAndQuery::from_static("/v1/chat/completions"),
            Self::Generate => PathAndQuery::from_static("/generate"),
        }
    }

    pub(super) fn read(self, body: &[u8]) -> Result<TurnRequest<'_>, ApiError> {
        Ok(match self {
            Self::Chat => TurnRequest::Chat(ChatRequest::read(body)?),
            Self::Generate => TurnRequest::Generate(GenerateRequest::read(body)?),
        })
    }

    /// Checks a reply of the engine.
    pub(super) fn check<'a>(
        self,
        body: &'a [u8],
        input_ids: Option<&[u32]>,
        known: Option<KnownPrompt>,
    ) -> Result<Checked<'a>, ReplyError> {
        Ok(match self {
            Self::Chat => {
                let reply = ChatReply::parse(body, input_ids, known)?;
                Checked {
                    client_body: reply.client_body(body),
                    record_body: reply.record_body(body),
                    prompt_text: reply.prompt_text(body),
                    generation: reply.generation,
                }
            }
            Self::Generate => {
                let reply = GenerateReply::parse(body, input_ids)?;
                Checked {
                    client_body: reply.client_body(body),
                    record_body: reply.record_body(body),
                    prompt_text: None,
                    generation: reply.generation,
                }
            }
        })
    }
}

/// A reply that may be recorded.
#[derive(Debug)]
pub(super) struct Checked<'a> {
    pub(super) generation: Generation,
    /// For the client, when it is not the engine's body as it is.
    pub(super) client_body: Option<Vec<u8>>,
    pub(super) record_body: Vec<u8>,
    /// The list of prompt ids as the engine wrote it.
    pub(super) prompt_text: Option<&'a str>,
}

/// A request as an engine may get it.
#[derive(Debug)]
pub(super) struct Bodies {
    /// For an answer in one piece.
    pub(super) whole: Bytes,
    /// For a stream that can be recorded, if the client wants a stream.
    pub(super) streamed: Option<Bytes>,
}

/// A request of either dialect.
#[derive(Debug)]
pub(super) enum TurnRequest<'a> {
    Chat(ChatRequest<'a>),
    Generate(GenerateRequest<'a>),
}

impl TurnRequest<'_> {
    pub(super) fn messages(&self) -> Option<usize> {
        match self {
            Self::Chat(chat) => Some(chat.messages),
            Self::Generate(_) => None,
        }
    }

    pub(super) fn has_logprob_start(&self) -> bool {
        match self {
            Self::Chat(chat) => chat.has_logprob_start,
            Self::Generate(generate) => generate.has_logprob_start,
        }
    }

    /// Whether the answer is streamed, and with usage.
    pub(super) fn stream(&self) -> Option<StreamOptions> {
        match self {
            Self::Chat(chat) if chat.wants_stream => Some(StreamOptions {
                include_usage: chat.wants_usage,
                log_probs: chat.wants_log_probs(),
                tools: chat.has_tools(),
            }),
            _ => None,
        }
    }

    pub(super) fn input_ids(&self) -> Option<Vec<u32>> {
        match self {
            Self::Chat(_) => None,
            Self::Generate(generate) => generate.input_ids.clone(),
        }
    }

    /// The bodies for the engine.
    pub(super) fn rewrite(
        &self,
        rid: HexId,
        sampling: &Sampling,
        budget: Option<Budget>,
    ) -> Result<Bodies, ApiError> {
        let rid = rid.as_str();
        let (whole, streamed) = match self {
            Self::Generate(generate) => (generate.rewrite(rid, sampling)?, None),
            Self::Chat(chat) => {
                let body = |recording| chat.rewrite(rid, sampling, budget, recording);
                let streamed = chat.can_be_streamed().then(|| body(Recording::Streamed));
                (body(Recording::Whole)?, streamed.transpose()?)
            }
        };
        Ok(Bodies {
            whole: Bytes::from(whole),
            streamed: streamed.map(Bytes::from),
        })
    }

    /// Whether the record has everything that the client asked for.
    pub(super) fn is_answered_by_record(&self) -> bool {
        match self {
            Self::Chat(chat) => !chat.wants_log_probs(),
            Self::Generate(_) => false,
        }
    }
}
