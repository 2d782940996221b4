//! Whether a message that a client sends again is the one that was recorded.
//!
//! Clients parse a reply and write its message anew: keys in another order, `null` where nothing was, numbers spelled otherwise, an
//! `index` in each tool call or not. A [`Matcher`] says which of these differences are none. The rules are those of Miles's session
//! server, down to what Python calls equal (`1 == 1.0 == True`), because a message that matches here and not there, or the other way
//! round, gives other training samples.
//!
//! Inputs: two messages as JSON text. They are compared where they lie; no tree is built, and two equal texts are equal at a glance.
//! Caveats: a text that is not a JSON object matches only itself; values are compared down to [`MAX_DEPTH`](crate::json::MAX_DEPTH)
//! levels.

mod arguments;
mod decimal;
mod equality;
mod message;
mod text;

use std::fmt;
use std::str::FromStr;

use crate::json::JsonError;
use message::Message;

/// Which messages count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Matcher {
    /// Role, content, reasoning and tool calls are equal; a missing one, `null`, `""` and `[]` are the same.
    #[default]
    Strict,
    /// The same, and the arguments of a tool call may be another spelling of the same JSON object.
    LooseToolCall,
    /// Only role and content are compared.
    RoleContentOnly,
}

impl Matcher {
    /// All matchers.
    pub const ALL: [Self; 3] = [Self::Strict, Self::LooseToolCall, Self::RoleContentOnly];

    /// The name in flags and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::LooseToolCall => "loose_tool_call",
            Self::RoleContentOnly => "role_content_only",
        }
    }

    /// Whether `replayed` stands for `stored`.
    pub fn matches(self, stored: &str, replayed: &str) -> bool {
        if stored == replayed {
            return true;
        }
        self.compare(stored, replayed).unwrap_or(false)
    }

    fn compare(self, stored: &str, replayed: &str) -> Result<bool, JsonError> {
        let stored = Message::read(stored)?;
        let replayed = Message::read(replayed)?;
        if !stored.same_role_and_content(&replayed)? {
            return Ok(false);
        }
        if self == Self::RoleContentOnly {
            return Ok(true);
        }
        if !stored.same_reasoning(&replayed)? {
            return Ok(false);
        }
        let strict = stored.same_tool_calls(&replayed)?;
        Ok(strict || (self == Self::LooseToolCall && stored.loosely_same_tool_calls(&replayed)?))
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The role of a message, if it has one that is a string.
pub(crate) fn role(message: &str) -> Option<String> {
    Message::read(message).ok()?.role_text()
}

/// A name that no matcher has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no message matcher is called {0:?}: there are strict, loose_tool_call and role_content_only"
)]
pub struct UnknownMatcher(pub String);

impl FromStr for Matcher {
    type Err = UnknownMatcher;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|matcher| matcher.name() == name)
            .ok_or_else(|| UnknownMatcher(name.to_owned()))
    }
}
