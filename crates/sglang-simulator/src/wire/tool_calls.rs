//! Tool calls in the text of a Qwen model (`--tool-call-parser qwen25`).

use serde_json::Value;

pub(crate) const OPEN: &str = "<tool_call>\n";
const CLOSE: &str = "\n</tool_call>";

/// One call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    /// JSON text of the arguments.
    pub(crate) arguments: String,
}

/// Writes a call as the model does.
pub(crate) fn render(name: &str, arguments: &Value) -> String {
    let name = Value::from(name);
    format!(
        "{OPEN}{{\"name\": {name}, \"arguments\": {}}}{CLOSE}",
        spaced(arguments)
    )
}

/// Splits a text into its content and its calls. As in SGLang, content is what comes before the first opening tag, and a call
/// that is cut off or no JSON is dropped.
pub(crate) fn parse(text: &str) -> (String, Vec<ToolCall>) {
    let Some((content, _)) = text.split_once(OPEN) else {
        return (text.to_owned(), Vec::new());
    };
    let calls = text
        .split(OPEN)
        .skip(1)
        .filter_map(|part| part.split_once(CLOSE))
        .filter_map(|(body, _)| parse_call(body))
        .collect();
    (content.trim().to_owned(), calls)
}

pub(crate) fn parse_call(body: &str) -> Option<ToolCall> {
    let call: Value = serde_json::from_str(body.trim()).ok()?;
    let arguments = call.get("arguments").or_else(|| call.get("parameters"))?;
    Some(ToolCall {
        name: call.get("name")?.as_str()?.to_owned(),
        arguments: spaced(arguments),
    })
}

/// JSON with a blank after colons and commas, as Python writes it.
pub(crate) fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// Where the streamable part of a text ends: at an opening tag, or at what may become one.
pub(crate) fn content_end(text: &str) -> usize {
    if let Some(at) = text.find(OPEN) {
        return at;
    }
    let longest = OPEN.len().min(text.len());
    (1..=longest)
        .rev()
        .find(|length| text.ends_with(&OPEN[..*length]))
        .map_or(text.len(), |length| text.len() - length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_rendered_is_parsed() {
        let text = format!(
            "Let me see.\n{}",
            render("add", &json!({"a": 1, "b": ["x"]}))
        );
        assert_eq!(
            text,
            "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [\"x\"]}}\n</tool_call>"
        );
        let (content, calls) = parse(&text);
        assert_eq!(content, "Let me see.");
        assert_eq!(
            calls,
            [ToolCall {
                name: "add".into(),
                arguments: "{\"a\": 1, \"b\": [\"x\"]}".into()
            }]
        );
    }

    #[test]
    fn a_call_that_is_cut_off_is_no_call() {
        assert_eq!(
            parse("<tool_call>\n{\"name\": \"add\""),
            (String::new(), vec![])
        );
    }

    #[test]
    fn a_beginning_tag_is_held_back() {
        assert_eq!(content_end("abc<tool"), 3);
        assert_eq!(content_end("abc<tool_call>\n{"), 3);
        assert_eq!(content_end("a < b"), 5);
    }
}
