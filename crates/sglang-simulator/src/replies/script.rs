//! Answers by rules: a YAML list, or an object with the list under `rules`. The first rule that matches the last message answers.
//!
//! ```yaml
//! - match: 'What is (?<sum>[0-9 +*-]+)\?'     # regular expression on the text of the last message
//!   role: user                                # its role; any when absent
//!   afterTurns: 0                             # least number of assistant messages before; after_turns is the same
//!   reply:
//!     reasoning_content: I had better ask.
//!     tool_calls: [{name: calculator, arguments: {expression: $sum}}]
//! - match: .*
//!   role: tool
//!   replies:                                  # one of several, by weight
//!     - {weight: 3, answer: {correctPercent: 50}}
//!     - {content: I give up.}
//! ```
//!
//! `content`, `reasoning_content` and the texts in `arguments` may name groups of the match (`$1`, `$sum`, `$$` for a dollar).
//! `answer` gives the label of the data set's problem in `\boxed{}`, right with the given probability; for an unknown problem the
//! last tool result counts as right. The text of a reply is what a Qwen model would generate: reasoning in `<think>`, calls in `<tool_call>`.

use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::dataset::Problems;
use super::{Ask, oracle};
use crate::config::{Script, WordRange};
use crate::wire::tool_calls;
use crate::{Error, numbers};

/// Rules, in their order.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    pattern: Regex,
    role: Option<String>,
    after_turns: usize,
    replies: Vec<Reply>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    rules: Vec<serde_yaml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    #[serde(rename = "match", default)]
    pattern: Option<String>,
    #[serde(default)]
    role: Option<String>,
    #[serde(rename = "afterTurns", alias = "after_turns", default)]
    after_turns: usize,
    #[serde(default)]
    reply: Option<Reply>,
    #[serde(default)]
    replies: Vec<Reply>,
}

/// One reply of a rule.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    content: Option<String>,
    #[serde(rename = "reasoning_content", alias = "reasoningContent", default)]
    reasoning: Option<String>,
    #[serde(rename = "tool_calls", alias = "toolCalls", default)]
    tool_calls: Vec<Call>,
    #[serde(default)]
    answer: Option<Answer>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Answer {
    correct_percent: u32,
    words: WordRange,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            correct_percent: 50,
            words: WordRange::default(),
        }
    }
}

fn one() -> u32 {
    1
}

impl Rules {
    /// Reads the script of a configuration.
    ///
    /// # Errors
    /// The file cannot be read, is no YAML of this form, or a rule makes no sense.
    pub fn load(script: &Script) -> Result<Self, Error> {
        let text = match (&script.inline, &script.path) {
            (Some(inline), None) => inline.clone(),
            (None, Some(path)) => std::fs::read_to_string(path).map_err(|source| Error::Read {
                field: "replies.script.path".into(),
                path: path.clone(),
                source,
            })?,
            _ => {
                return Err(Error::config(
                    "replies.script",
                    "give exactly one of path and inline",
                ));
            }
        };
        Self::parse(&text)
    }

    /// Reads rules.
    ///
    /// # Errors
    /// As [`Rules::load`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refused = |problem: String| Error::config("replies.script", problem);
        let raw: serde_yaml::Value =
            serde_yaml::from_str(text).map_err(|error| refused(format!("is no YAML: {error}")))?;
        let list = match raw {
            serde_yaml::Value::Sequence(list) => list,
            other => {
                serde_yaml::from_value::<RawRules>(other)
                    .map_err(|error| refused(format!("is no list of rules: {error}")))?
                    .rules
            }
        };
        if list.is_empty() {
            return Err(refused("has no rules".into()));
        }
        let rules = list
            .into_iter()
            .enumerate()
            .map(|(index, rule)| {
                let rule = serde_yaml::from_value(rule).map_err(|error| error.to_string());
                rule.and_then(Rule::new)
                    .map_err(|problem| Error::config(format!("replies.script[{index}]"), problem))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// The text of the reply, when a rule matches.
    pub(crate) fn reply(&self, ask: &Ask<'_>, problems: &Problems) -> Option<String> {
        let conversation = ask.conversation();
        let last = conversation.last()?;
        let turns = conversation.assistant_turns();
        self.rules
            .iter()
            .filter(|rule| {
                rule.role.as_ref().is_none_or(|role| *role == last.role)
                    && turns >= rule.after_turns
            })
            .find_map(|rule| {
                let captures = rule.pattern.captures(&last.text)?;
                rule.choose(ask.seed).render(&captures, ask, problems)
            })
    }
}

impl Rule {
    fn new(raw: RawRule) -> Result<Self, String> {
        let pattern = raw.pattern.unwrap_or_default();
        let pattern = Regex::new(&pattern).map_err(|error| format!("match: {error}"))?;
        let replies = match (raw.reply, raw.replies) {
            (Some(reply), replies) if replies.is_empty() => vec![reply],
            (None, replies) if !replies.is_empty() => replies,
            _ => return Err("give exactly one of reply and replies".into()),
        };
        if replies.iter().all(|reply| reply.weight == 0) {
            return Err("every weight is 0".into());
        }
        for reply in &replies {
            if reply.says_nothing() {
                return Err("a reply says nothing: give content, tool_calls or answer".into());
            }
            if reply
                .answer
                .is_some_and(|answer| answer.correct_percent > 100)
            {
                return Err("answer.correctPercent: write 0 to 100".into());
            }
            if reply
                .answer
                .is_some_and(|answer| answer.words.min > answer.words.max)
            {
                return Err("answer.words: min is above max".into());
            }
        }
        Ok(Self {
            pattern,
            role: raw.role,
            after_turns: raw.after_turns,
            replies,
        })
    }

    fn choose(&self, seed: u64) -> &Reply {
        let total: usize = self.replies.iter().map(|reply| reply.weight as usize).sum();
        let mut drawn = numbers::below(numbers::mix(seed, 0x5c), total);
        for reply in &self.replies {
            let weight = reply.weight as usize;
            if drawn < weight {
                return reply;
            }
            drawn -= weight;
        }
        &self.replies[0]
    }
}

impl Reply {
    fn says_nothing(&self) -> bool {
        let has_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        !has_text(&self.content)
            && !has_text(&self.reasoning)
            && self.tool_calls.is_empty()
            && self.answer.is_none()
    }

    fn render(
        &self,
        captures: &Captures<'_>,
        ask: &Ask<'_>,
        problems: &Problems,
    ) -> Option<String> {
        let expand = |template: &str| {
            let mut text = String::new();
            captures.expand(template, &mut text);
            text
        };
        let mut parts = Vec::new();
        if let Some(reasoning) = &self.reasoning {
            parts.push(format!("<think>\n{}\n</think>\n", expand(reasoning)));
        }
        if let Some(content) = &self.content {
            parts.push(expand(content));
        }
        if let Some(answer) = self.answer {
            parts.push(oracle::answer(
                problems,
                ask,
                answer.correct_percent,
                answer.words,
            )?);
        }
        for call in &self.tool_calls {
            let mut arguments = Value::Object(call.arguments.clone());
            each_text(&mut arguments, &expand);
            parts.push(tool_calls::render(&call.name, &arguments));
        }
        Some(parts.join("\n"))
    }
}

fn each_text(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| each_text(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
