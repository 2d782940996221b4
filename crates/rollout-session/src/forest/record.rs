//! What was asked and answered, as it is held and as it is shown.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::delta::{Delta, Link, common_prefix_of_pieces, pieces};
use super::{Forest, Replay, Shape, Turn, TurnContext, TurnId};
use crate::messages::reply_message;

/// A request and the messages of its turn as they are held.
pub(super) struct Held {
    pub(super) head: Delta<u8>,
    pub(super) tail: Delta<u8>,
    pub(super) first_message: usize,
    pub(super) new_messages: Box<[Range<usize>]>,
    pub(super) answer: Option<Range<usize>>,
    pub(super) conversation: usize,
}

impl Forest {
    /// Request body of a turn, as the engine got it; without `input_ids` where these were the router's own.
    pub fn request(&self, id: TurnId) -> Vec<u8> {
        let mut body = self.part(id, |turn| &turn.request).concat();
        for piece in self.part(id, |turn| &turn.request_tail) {
            body.extend_from_slice(piece);
        }
        body
    }

    /// A part of a turn's request, in pieces.
    fn part(&self, id: TurnId, part: impl Fn(&Turn) -> &Delta<u8>) -> Vec<&[u8]> {
        let wanted = self.turn(id).map_or(0, |turn| part(turn).len());
        pieces(id.index(), wanted, |index| {
            let turn = &self.turns[index];
            let part = part(turn);
            Link {
                shared: part.shared(),
                own: [part.own(), &[]],
                parent: turn.parent_index(),
            }
        })
    }

    /// Leading messages of a request that are, byte for byte, those of the request of `turn`. Whoever goes on with a conversation sends
    /// nearly all of it as before.
    pub(super) fn repeated_messages(
        &self,
        turn: TurnId,
        body: &str,
        spans: &[Range<usize>],
    ) -> usize {
        let Some((first, earlier)) = spans.first().zip(self.turn(turn)) else {
            return 0;
        };
        // Equal bytes are equal messages only where both have their messages at the same place.
        if earlier.answer.is_none() || first.start != earlier.first_message {
            return 0;
        }
        let pieces = self.part(turn, |turn| &turn.request);
        let same = common_prefix_of_pieces(&pieces, body.as_bytes());
        let count = spans.iter().take_while(|span| span.end <= same).count();
        count.min(earlier.conversation - 1)
    }

    pub(super) fn hold_request(
        &self,
        parent: Option<TurnId>,
        known: usize,
        context: &TurnContext<'_>,
    ) -> Held {
        let spans = context.message_spans;
        let end = spans.last().map_or(context.request.len(), |span| {
            span.end.min(context.request.len())
        });
        let (head, tail) = context.request.split_at(end);
        let mut shared = parent.map_or(0, |parent| {
            common_prefix_of_pieces(&self.part(parent, |turn| &turn.request), head)
        });
        let new = match self.shape {
            Shape::Recorded => &[],
            Shape::Line | Shape::Tree => spans.get(known..).unwrap_or_default(),
        };
        // New messages lie in one piece, so that they can be compared where they are.
        if let Some(first) = new.first() {
            shared = shared.min(first.start);
        }
        let shared_tail = parent.map_or(0, |parent| {
            common_prefix_of_pieces(&self.part(parent, |turn| &turn.request_tail), tail)
        });
        let answer = if spans.is_empty() {
            None
        } else {
            std::str::from_utf8(&context.response)
                .ok()
                .and_then(reply_message)
        };
        Held {
            head: Delta::new(shared, head),
            tail: Delta::new(shared_tail, tail),
            first_message: spans.first().map_or(0, |span| span.start),
            new_messages: new
                .iter()
                .map(|span| span.start - shared..span.end - shared)
                .collect(),
            conversation: spans.len() + usize::from(answer.is_some()),
            answer,
        }
    }

    /// A turn as a record: request and reply with everything that is held beside them put back.
    pub fn record_view(&self, id: TurnId) -> Value {
        let Some(turn) = self.turn(id) else {
            return Value::Null;
        };
        let mut request: Value = serde_json::from_slice(&self.request(id)).unwrap_or(Value::Null);
        if let Some(request) = request.as_object_mut().filter(|_| turn.sent_ids) {
            request.insert("input_ids".to_owned(), json!(self.prompt_ids(id)));
        }
        let is_chat = turn.messages.is_some();
        json!({
            "timestamp": turn.answered_at,
            "request_timestamp": turn.requested_at,
            "method": "POST",
            "path": if is_chat { "/v1/chat/completions" } else { "/generate" },
            "request": request,
            "response": self.whole_response(id, turn),
            "status_code": 200,
        })
    }

    fn whole_response(&self, id: TurnId, turn: &Turn) -> Value {
        let mut response: Value = serde_json::from_slice(&turn.response).unwrap_or(Value::Null);
        let choice = if turn.messages.is_some() {
            response.pointer_mut("/choices/0")
        } else {
            Some(&mut response)
        };
        let Some(choice) = choice.and_then(Value::as_object_mut) else {
            return response;
        };
        let meta = choice
            .entry("meta_info")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("output_token_logprobs".to_owned(), token_rows(turn));
            for replay in [Replay::RoutedExperts, Replay::IndexerTopK] {
                if let Ok(Some(length)) = self.replay_len(id, replay) {
                    let bytes = self.replay_bytes(id, replay, length).concat();
                    meta.insert(replay.field().to_owned(), json!(STANDARD.encode(bytes)));
                }
            }
        }
        if !turn.sent_ids {
            choice.insert("prompt_token_ids".to_owned(), json!(self.prompt_ids(id)));
        }
        response
    }
}

/// `[[log-probability, token id, text or null], ...]`.
fn token_rows(turn: &Turn) -> Value {
    let pieces = turn.pieces();
    let rows = turn.output.iter().zip(&turn.log_probs).enumerate();
    rows.map(|(at, (id, log_prob))| {
        let text = pieces.map(|pieces| &pieces.first(at + 1)[pieces.first(at).len()..]);
        json!([log_prob, id, text])
    })
    .collect()
}
