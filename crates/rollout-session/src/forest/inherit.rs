//! Turns whose prompts the router renders itself: messages say what a request continues, before anything is generated.
//!
//! [`Forest::prepare`] finds the turn that a request continues, [`Forest::commit_at`] records the answer below it. Nothing is taken away
//! in between: a retry that fails leaves the turn that it would have replaced. Answers that come at the same time are siblings; of a
//! *line* the first that is committed is the conversation, the others are kept beside it.

use std::ops::Range;

use super::attach::Attachment;
use super::delta::{common_prefix, common_prefix_of_pieces};
use super::{Edge, Forest, Parent, Shape, TurnContext, TurnId};
use crate::matcher::{self, Matcher};
use crate::reply::{FinishReason, Generation};

/// Answered turns that a line goes back at most.
const MAX_ROLLBACK: usize = 1;

/// What holds for a session's requests.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Which messages count as the same; the same for all requests of a session.
    pub matcher: Matcher,
    /// Roles that may follow what was generated; `None` allows all.
    pub append_roles: Option<&'a [&'a str]>,
    /// Turns that the session may have.
    pub max_turns: usize,
    /// Turns that are being generated now: they are counted as if they were there.
    pub in_flight: usize,
}

/// Where a request goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The turn that it continues; `None` begins a conversation.
    pub base: Option<TurnId>,
    /// Leading messages of the request that `base` has.
    pub known: usize,
    view: Option<TurnId>,
    epoch: u64,
}

impl Position {
    /// The session's epoch when the request came.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Why a request has no place. The texts of the first three are those of Miles's session server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// A line would lose more than one answered turn.
    #[error(
        "rollback failed: discard_count={discard} exceeds max_assistant_rollback_steps={MAX_ROLLBACK} (stored has {stored} messages, request has {request} messages)"
    )]
    RollbackTooDeep {
        /// Answered turns that it would lose.
        discard: usize,
        /// Messages of the conversation.
        stored: usize,
        /// Messages of the request.
        request: usize,
    },
    /// A template cannot append such a message.
    #[error(
        "appended message at index {index} has role={role}, allowed={allowed}; the selected TITO fixed template does not support appending this role"
    )]
    RoleInLine {
        /// Its place in the request.
        index: usize,
        /// Its role, quoted.
        role: String,
        /// What may be appended.
        allowed: String,
    },
    /// The same in a tree.
    #[error(
        "appended message role={role} not allowed (allowed={allowed}); the selected TITO fixed template does not support appending this role"
    )]
    RoleInTree {
        /// Its role, quoted.
        role: String,
        /// What may be appended.
        allowed: String,
    },
    /// The turn that it continues was cut.
    #[error("truncated generation cannot be extended: turn {turn} ended at its token limit")]
    Truncated {
        /// That turn.
        turn: usize,
    },
    /// The session has as many turns as it may have.
    #[error("the session has {turns} turns, the limit")]
    Full {
        /// Turns, those in flight included.
        turns: usize,
    },
}

/// Why an answer cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The session was closed.
    #[error(transparent)]
    StaleEpoch(#[from] super::StaleEpoch),
    /// The prompt does not begin with what it continues.
    #[error(
        "pretokenized prefix mismatch: the prompt and output share {shared} tokens with turn {turn}, expected {expected}"
    )]
    PrefixMismatch {
        /// The turn that it was to continue.
        turn: usize,
        /// Leading tokens that both have.
        shared: usize,
        /// Leading tokens that both must have.
        expected: usize,
    },
}

impl Forest {
    /// Finds where a request goes on. Costs a generation nothing: every refusal comes before one is begun.
    ///
    /// The conversation as it is now moves only where Miles moves it: a tree goes to the turn that is continued, a line goes back when the
    /// request is refused for a role after a rollback. No turn is lost by it.
    ///
    /// # Errors
    /// Why the request has no place.
    pub fn prepare(
        &mut self,
        body: &str,
        message_spans: &[Range<usize>],
        rules: Rules<'_>,
    ) -> Result<Position, PrepareError> {
        let turns = self.len() + rules.in_flight;
        if turns >= rules.max_turns {
            return Err(PrepareError::Full { turns });
        }
        let request = self.incoming(body, message_spans, rules.matcher);
        match self.shape {
            Shape::Tree => self.prepare_tree(&request, rules),
            Shape::Line | Shape::Recorded => self.prepare_line(&request, rules),
        }
    }

    fn incoming<'a>(
        &self,
        body: &'a str,
        spans: &[Range<usize>],
        matcher: Matcher,
    ) -> Incoming<'a> {
        let messages = spans
            .iter()
            .map(|span| body.get(span.clone()).unwrap_or_default())
            .collect();
        Incoming {
            messages,
            matcher,
            path: self.path(self.head),
            repeated: self
                .head
                .map_or(0, |head| self.repeated_messages(head, body, spans)),
        }
    }

    fn prepare_tree(
        &mut self,
        request: &Incoming<'_>,
        rules: Rules<'_>,
    ) -> Result<Position, PrepareError> {
        let base = self.deepest_match(request, None);
        if let Some(turn) = base.filter(|base| self.is_truncated(*base)) {
            return Err(PrepareError::Truncated { turn: turn.index() });
        }
        self.go_to(base);
        let known = self.conversation_len(base);
        if let Some((_, role)) = refused_role(&request.messages[known..], base, rules) {
            let allowed = python_list(rules.append_roles.unwrap_or_default());
            return Err(PrepareError::RoleInTree { role, allowed });
        }
        Ok(self.position(base, known))
    }

    fn prepare_line(
        &mut self,
        request: &Incoming<'_>,
        rules: Rules<'_>,
    ) -> Result<Position, PrepareError> {
        let view = &request.path;
        let stored = self.conversation_len(self.head);
        let matched = self.matching_messages(request);
        let kept = if matched >= stored {
            view.len()
        } else {
            let fits = |turn: &&TurnId| self.conversation_len(Some(**turn)) <= matched;
            view.iter().take_while(fits).count()
        };
        let discard = view.len() - kept;
        if discard > MAX_ROLLBACK {
            return Err(PrepareError::RollbackTooDeep {
                discard,
                stored,
                request: request.messages.len(),
            });
        }
        let rolled_back = kept.checked_sub(1).map(|last| view[last]);
        // An answer that came beside the conversation, and that the client chose to go on with.
        let base = self.deepest_match(request, rolled_back).or(rolled_back);
        let known = self.conversation_len(base);
        if let Some((at, role)) = refused_role(&request.messages[known..], base, rules) {
            self.go_to(base);
            return Err(PrepareError::RoleInLine {
                index: known + at,
                role,
                allowed: python_list(rules.append_roles.unwrap_or_default()),
            });
        }
        Ok(self.position(base, known))
    }

    fn position(&self, base: Option<TurnId>, known: usize) -> Position {
        Position {
            base,
            known,
            view: self.head,
            epoch: self.epoch,
        }
    }

    /// Makes a turn the last one of the conversation as it is now.
    fn go_to(&mut self, turn: Option<TurnId>) {
        if self.head != turn {
            self.head = turn;
            self.set_head_text(None);
        }
    }

    fn is_truncated(&self, id: TurnId) -> bool {
        self.turn(id)
            .is_some_and(|turn| turn.generation.finish == Some(FinishReason::Length))
    }

    /// Messages of the conversation that ends with a turn.
    pub fn conversation_len(&self, turn: Option<TurnId>) -> usize {
        turn.and_then(|id| self.turn(id))
            .map_or(0, |turn| turn.conversation)
    }

    /// The messages of the conversation that ends with a turn, as they are held.
    pub fn conversation(&self, turn: Option<TurnId>) -> Vec<&str> {
        let path = self.path(turn);
        let turns = path.iter().filter_map(|id| self.turn(*id));
        turns
            .flat_map(super::Turn::added_messages)
            .map(text)
            .collect()
    }

    /// Leading messages of a request that the conversation as it is now has too.
    fn matching_messages(&self, request: &Incoming<'_>) -> usize {
        let turns = request.path.iter().filter_map(|id| self.turn(*id));
        let stored = turns.flat_map(super::Turn::added_messages);
        let same = |(stored, replayed): &(&[u8], &&str)| request.same(stored, replayed);
        let rest = stored.zip(&request.messages).skip(request.repeated);
        request.repeated + rest.take_while(same).count()
    }

    /// Of the turns whose whole conversation begins the request, the one with the longest; of equals the latest. `below` looks only at
    /// that turn and those after it.
    fn deepest_match(&self, request: &Incoming<'_>, below: Option<TurnId>) -> Option<TurnId> {
        let mut best: Option<TurnId> = None;
        // Parents come before their children: one pass without recursion, however deep the tree is.
        let mut begins: Vec<bool> = Vec::with_capacity(self.turns.len());
        for (id, turn) in self.turns() {
            let is_repeated = turn.conversation <= request.repeated
                && turn.answer.is_some()
                && request.path.binary_search(&id).is_ok();
            let begins_it = if Some(id) == below || (is_repeated && below.is_none()) {
                true
            } else {
                let from = match turn.parent {
                    Some(parent) => begins[parent.turn.index()]
                        .then(|| self.conversation_len(Some(parent.turn))),
                    None => below.is_none().then_some(0),
                };
                from.and_then(|from| request.messages.get(from..))
                    .is_some_and(|rest| adds_only(turn, rest, request))
            };
            begins.push(begins_it);
            if begins_it && self.conversation_len(best) <= turn.conversation {
                best = Some(id);
            }
        }
        best
    }

    /// Records the answer to a request that was prepared.
    ///
    /// # Errors
    /// The session was closed in between, or the prompt does not begin with the turn that it continues.
    pub fn commit_at(
        &mut self,
        position: &Position,
        generation: Generation,
        context: TurnContext<'_>,
    ) -> Result<TurnId, CommitError> {
        if position.epoch != self.epoch {
            return Err(super::StaleEpoch.into());
        }
        let shared = match position.base {
            Some(base) => self.check_prefix(base, &generation)?,
            None => 0,
        };
        let parent = position.base.map(|turn| Parent {
            turn,
            edge: Edge::Extends,
        });
        let prompt_text = context.prompt_text;
        let attached = Attachment { parent, shared };
        let id = self.add(attached, position.known, generation, context);
        if self.shape == Shape::Tree || self.head == position.view {
            self.head = Some(id);
            self.set_head_text(prompt_text);
        }
        Ok(id)
    }

    /// Leading tokens of the prompt that the base has too, if they are all that it must have.
    fn check_prefix(&self, base: TurnId, generation: &Generation) -> Result<usize, CommitError> {
        let total = self.turn(base).map_or(0, super::Turn::total);
        let before = self.id_pieces(base, total);
        let prompt = &generation.prompt_ids;
        let of_prompt = common_prefix_of_pieces(&before, prompt);
        let mut shared = of_prompt;
        if shared == prompt.len() && shared < total {
            let before = before.concat();
            shared += common_prefix(&before[shared..], &generation.output_ids);
        }
        let prompt_of_base = self.turn(base).map_or(0, super::Turn::prompt_len);
        let expected = total.saturating_sub(self.max_trim).max(prompt_of_base);
        if shared < expected {
            return Err(CommitError::PrefixMismatch {
                turn: base.index(),
                shared,
                expected,
            });
        }
        Ok(of_prompt)
    }
}

/// A request on its way to its place.
struct Incoming<'a> {
    messages: Vec<&'a str>,
    matcher: Matcher,
    /// The conversation as it is now.
    path: Vec<TurnId>,
    /// Leading messages that its last request had too, in the same bytes: they were compared then.
    repeated: usize,
}

impl Incoming<'_> {
    fn same(&self, stored: &[u8], replayed: &str) -> bool {
        stored == replayed.as_bytes() || self.matcher.matches(text(stored), replayed)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Whether all messages that a turn adds begin `rest`.
fn adds_only(turn: &super::Turn, rest: &[&str], request: &Incoming<'_>) -> bool {
    let mut rest = rest.iter();
    // A turn without messages belongs to no conversation.
    turn.answer.is_some()
        && turn.added_messages().all(|stored| {
            rest.next()
                .is_some_and(|replayed| request.same(stored, replayed))
        })
}

/// The first message that may not follow what was generated: its place and its role, quoted. A conversation may begin with anything.
fn refused_role(
    appended: &[&str],
    base: Option<TurnId>,
    rules: Rules<'_>,
) -> Option<(usize, String)> {
    base?;
    let allowed = rules.append_roles?;
    appended.iter().enumerate().find_map(|(at, message)| {
        let role = matcher::role(message);
        let is_allowed = role.as_deref().is_some_and(|role| allowed.contains(&role));
        let quoted = role.map_or_else(|| "None".to_owned(), |role| format!("'{role}'"));
        (!is_allowed).then_some((at, quoted))
    })
}

/// A list as Python prints it.
fn python_list(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("'{item}'")).collect();
    format!("[{}]", items.join(", "))
}
