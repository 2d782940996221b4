//! What a request says, as turns: from chat messages, or from a rendered prompt.

use serde_json::Value;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Its role.
    pub role: String,
    /// Its text; parts that are no text are left out.
    pub text: String,
}

/// The turns of a request, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The turns.
    pub turns: Vec<Turn>,
}

impl Conversation {
    /// Reads OpenAI messages.
    pub fn of_messages(messages: &[Value]) -> Self {
        let turns = messages
            .iter()
            .map(|message| Turn {
                role: message["role"].as_str().unwrap_or_default().to_owned(),
                text: text_of(&message["content"]),
            })
            .collect();
        Self { turns }
    }

    /// Reads a rendered prompt. With `ChatML` markers every closed message is a turn, and an assistant message that is not closed
    /// (a generation prompt, a resumed sample) is none; without markers the whole text is the user's.
    pub fn of_text(text: &str) -> Self {
        const OPEN: &str = "<|im_start|>";
        const CLOSE: &str = "<|im_end|>";
        if !text.contains(OPEN) {
            let turn = Turn {
                role: "user".into(),
                text: text.into(),
            };
            return Self { turns: vec![turn] };
        }
        let mut turns = Vec::new();
        for part in text.split(OPEN).skip(1) {
            let (role, rest) = part.split_once('\n').unwrap_or((part, ""));
            let Some((body, _)) = rest.split_once(CLOSE) else {
                continue;
            };
            turns.push(of_chatml(role, body));
        }
        Self { turns }
    }

    /// The last turn.
    pub fn last(&self) -> Option<&Turn> {
        self.turns.last()
    }

    /// How often the assistant has spoken.
    pub fn assistant_turns(&self) -> usize {
        self.turns
            .iter()
            .filter(|turn| turn.role == "assistant")
            .count()
    }

    /// The text of the last tool message.
    pub fn last_tool_result(&self) -> Option<&str> {
        self.turns
            .iter()
            .rev()
            .find(|turn| turn.role == "tool")
            .map(|turn| turn.text.as_str())
    }
}

/// Tool results are user messages with tags in `ChatML` templates.
fn of_chatml(role: &str, body: &str) -> Turn {
    let tool = body
        .strip_prefix("<tool_response>\n")
        .and_then(|rest| rest.strip_suffix("\n</tool_response>"));
    match tool {
        Some(result) => {
            let last = result.rsplit("<tool_response>\n").next().unwrap_or(result);
            Turn {
                role: "tool".into(),
                text: last.into(),
            }
        }
        None => Turn {
            role: role.trim().into(),
            text: body.into(),
        },
    }
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn roles(conversation: &Conversation) -> Vec<(&str, &str)> {
        let turns = conversation.turns.iter();
        turns
            .map(|turn| (turn.role.as_str(), turn.text.as_str()))
            .collect()
    }

    #[test]
    fn a_rendered_prompt_is_read_as_its_messages() {
        let text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n\
                    <|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n";
        let read = Conversation::of_text(text);
        assert_eq!(
            roles(&read),
            [("user", "hi"), ("assistant", "yes"), ("tool", "4")]
        );
        assert_eq!(read.assistant_turns(), 1);
        assert_eq!(read.last_tool_result(), Some("4"));
    }

    #[test]
    fn plain_text_is_the_users() {
        assert_eq!(roles(&Conversation::of_text("2+2?")), [("user", "2+2?")]);
    }

    #[test]
    fn content_parts_are_joined() {
        let messages = [
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]}),
        ];
        assert_eq!(
            roles(&Conversation::of_messages(&messages)),
            [("user", "ab")]
        );
    }
}
