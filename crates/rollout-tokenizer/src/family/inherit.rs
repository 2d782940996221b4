//! Prompts that inherit the ids of earlier turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Boundary, Family, Rules};
use crate::json::Json;
use crate::{RenderInput, Tokenizer, TokenizerError};

/// Template arguments by name.
pub type Kwargs = BTreeMap<String, Json>;

/// What can go wrong with a family.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// Somebody set a template argument that the family fixes.
    #[error(
        "chat template kwarg {name}={value} conflicts with the value registered for {family}: {fixed}"
    )]
    Conflict {
        /// The argument.
        name: String,
        /// What was asked for.
        value: String,
        /// The family.
        family: Family,
        /// What the family fixes.
        fixed: String,
    },
    /// A message of this role cannot follow a turn.
    #[error(
        "appended message at index {index} has role='{role}', allowed=[{allowed}]; the selected TITO fixed template does not support appending this role"
    )]
    Role {
        /// The place in the whole conversation.
        index: usize,
        /// The message's role.
        role: String,
        /// The roles that the family allows.
        allowed: String,
    },
    /// The tokenizer is not one of the family.
    #[error("the tokenizer is none of the family {family}: {problem}")]
    Foreign {
        /// The family.
        family: Family,
        /// What is missing.
        problem: String,
    },
    /// The template does more than append.
    #[error("the chat template cannot be used for the family {family}: {problem}")]
    NotAppendOnly {
        /// The family.
        family: Family,
        /// Where it shows.
        problem: String,
    },
    /// The tokenizer or its template failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

impl FamilyError {
    /// Whether the fault is in what the caller sent, not in the tokenizer's files or the set-up.
    pub fn is_callers(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::Role { .. } => true,
            Self::Foreign { .. } | Self::NotAppendOnly { .. } => false,
            Self::Tokenizer(error) => error.is_callers(),
        }
    }
}

/// A tokenizer with the rules of its family. Shared behind an `Arc`; every call is on its own, no call waits for another.
#[derive(Debug)]
pub struct Inheriting {
    tokenizer: Arc<Tokenizer>,
    family: Family,
    rules: Rules,
    defaults: Kwargs,
    /// Ids of the boundary's tokens; then the id of the line break.
    ends: Vec<u32>,
    line_break: Option<u32>,
}

impl Inheriting {
    /// Sets up a family. `defaults` are the template arguments of the server.
    ///
    /// # Errors
    /// A default contradicts the family, the tokenizer lacks the family's tokens, or there is no template.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        family: Family,
        defaults: &Kwargs,
    ) -> Result<Self, FamilyError> {
        if !tokenizer.has_chat_template() {
            return Err(TokenizerError::NoChatTemplate.into());
        }
        let rules = family.rules();
        let foreign = |problem: String| FamilyError::Foreign { family, problem };
        let id = |token: &str| {
            tokenizer
                .token_id(token)
                .ok_or_else(|| foreign(format!("it has no token {token:?}")))
        };
        let (ends, line_break) = match rules.boundary {
            Boundary::None => (Vec::new(), None),
            Boundary::DropLast(tokens) => (
                tokens.iter().copied().map(id).collect::<Result<_, _>>()?,
                None,
            ),
            Boundary::LineBreakAfter(token) => match tokenizer.encode("\n")?.as_slice() {
                [line_break] => (vec![id(token)?], Some(*line_break)),
                ids => {
                    return Err(foreign(format!(
                        "a line break is {} tokens instead of one",
                        ids.len()
                    )));
                }
            },
        };
        let inheriting = Self {
            tokenizer,
            family,
            rules,
            defaults: Kwargs::new(),
            ends,
            line_break,
        };
        let defaults = inheriting.kwargs(defaults)?;
        Ok(Self {
            defaults,
            ..inheriting
        })
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The family's rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The template arguments that hold for a request: the server's, over them the request's, and what the family fixes. This is what
    /// the engine is told too.
    ///
    /// # Errors
    /// The request sets an argument that the family fixes to another value.
    pub fn kwargs(&self, request: &Kwargs) -> Result<Kwargs, FamilyError> {
        let mut all = self.defaults.clone();
        if self
            .rules
            .aliases
            .iter()
            .any(|alias| request.contains_key(*alias))
        {
            all.retain(|name, _| !self.rules.aliases.contains(&name.as_str()));
        }
        for (name, value) in request {
            let fixed = self.rules.kwargs.iter().find(|(fixed, _)| fixed == name);
            if let Some((_, fixed)) = fixed
                && *value != Json::Bool(*fixed)
            {
                return Err(FamilyError::Conflict {
                    name: name.clone(),
                    value: shown(value),
                    family: self.family,
                    fixed: shown(&Json::Bool(*fixed)),
                });
            }
            all.insert(name.clone(), value.clone());
        }
        for (name, value) in self.rules.kwargs {
            all.insert((*name).to_owned(), Json::Bool(*value));
        }
        Ok(all)
    }

    /// The ids of a conversation that inherits nothing: its render, with the opening of the next turn.
    ///
    /// # Errors
    /// The template refused the messages or failed.
    pub fn first(
        &self,
        messages: &[Json],
        tools: Option<&Json>,
        kwargs: &Kwargs,
    ) -> Result<Vec<u32>, FamilyError> {
        let text = self.text(messages, tools, kwargs, true)?;
        Ok(self.tokenizer.encode(&text)?)
    }

    /// The ids of a conversation that goes on from a turn: `prefix` is every id up to the end of that turn, `old` the messages up to it,
    /// the turn's own included, and `appended` what came since.
    ///
    /// # Errors
    /// A role that may not be appended; a template that refused the messages, failed, or does more than append.
    pub fn merge(
        &self,
        old: &[Json],
        appended: &[Json],
        prefix: &[u32],
        tools: Option<&Json>,
        kwargs: &Kwargs,
    ) -> Result<Vec<u32>, FamilyError> {
        self.check_roles(old.len(), appended)?;
        let increment = self.increment(old, appended, tools, kwargs)?;
        let mut ids = Vec::with_capacity(prefix.len() + increment.len() / 3 + 8);
        ids.extend_from_slice(prefix);
        self.fix_boundary(&mut ids);
        ids.extend(self.tokenizer.encode(&increment)?);
        Ok(ids)
    }

    /// Whether messages of these roles may be appended. `index` is the place of the first in the whole conversation.
    ///
    /// # Errors
    /// One may not.
    pub fn check_roles(&self, index: usize, appended: &[Json]) -> Result<(), FamilyError> {
        for (offset, message) in appended.iter().enumerate() {
            let role = message.get("role").and_then(Json::as_str).unwrap_or("None");
            if !self.rules.append_roles.contains(&role) {
                let mut allowed = self.rules.append_roles.to_vec();
                allowed.sort_unstable();
                return Err(FamilyError::Role {
                    index: index + offset,
                    role: role.to_owned(),
                    allowed: quoted(&allowed),
                });
            }
        }
        Ok(())
    }

    /// What is inserted or dropped at the end of a turn. A turn that was cut by its length has no end token: it is left as it is.
    pub(super) fn fix_boundary(&self, ids: &mut Vec<u32>) {
        if !ids.last().is_some_and(|last| self.ends.contains(last)) {
            return;
        }
        match self.line_break {
            Some(line_break) => ids.push(line_break),
            None => {
                ids.pop();
            }
        }
    }

    /// The text of the appended messages and of the opening of the next turn.
    pub(super) fn increment(
        &self,
        old: &[Json],
        appended: &[Json],
        tools: Option<&Json>,
        kwargs: &Kwargs,
    ) -> Result<String, FamilyError> {
        // The last turn's calls stay: templates look up a result's call by its id.
        let calls = old
            .last()
            .and_then(|last| last.get("tool_calls"))
            .filter(|calls| calls.as_array().is_some())
            .cloned()
            .unwrap_or_else(|| Json::Array(Vec::new()));
        let system = Json::object([
            ("role", "system".into()),
            ("content", "dummy system".into()),
        ]);
        let user = Json::object([("role", "user".into()), ("content", "dummy user".into())]);
        let turn = Json::object([
            ("role", "assistant".into()),
            ("content", "".into()),
            ("reasoning_content", " ".into()),
            ("tool_calls", calls),
        ]);
        // Some templates want a user's message before a turn, some know no system message.
        let stand_ins = [
            vec![system.clone(), turn.clone()],
            vec![system, user.clone(), turn.clone()],
            vec![user, turn],
        ];
        let mut first_error = None;
        for stand_in in stand_ins {
            match self.difference(stand_in, appended, tools, kwargs) {
                Ok(increment) => return Ok(increment),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or(FamilyError::NotAppendOnly {
            family: self.family,
            problem: "no stand-in for the conversation".into(),
        }))
    }

    fn difference(
        &self,
        mut messages: Vec<Json>,
        appended: &[Json],
        tools: Option<&Json>,
        kwargs: &Kwargs,
    ) -> Result<String, FamilyError> {
        let before = self.text(&messages, tools, kwargs, false)?;
        messages.extend_from_slice(appended);
        let mut after = self.text(&messages, tools, kwargs, true)?;
        if !after.starts_with(&before) {
            return Err(FamilyError::NotAppendOnly {
                family: self.family,
                problem: "what it writes for earlier messages changes when messages are appended; `rollout-operator template verify` shows where".into(),
            });
        }
        Ok(after.split_off(before.len()))
    }

    pub(super) fn text(
        &self,
        messages: &[Json],
        tools: Option<&Json>,
        kwargs: &Kwargs,
        add_generation_prompt: bool,
    ) -> Result<String, TokenizerError> {
        let kwargs: Vec<(&str, Json)> = kwargs
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        self.tokenizer.render(&RenderInput {
            messages,
            tools,
            add_generation_prompt,
            continue_final_message: false,
            kwargs: &kwargs,
        })
    }
}

/// A template argument as Python prints it.
fn shown(value: &Json) -> String {
    match value {
        Json::Null => "None".into(),
        Json::Bool(true) => "True".into(),
        Json::Bool(false) => "False".into(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => format!("'{text}'"),
        Json::Array(_) => "[...]".into(),
        Json::Object(_) => "{...}".into(),
    }
}

fn quoted(roles: &[&str]) -> String {
    let quoted: Vec<String> = roles.iter().map(|role| format!("'{role}'")).collect();
    quoted.join(", ")
}
