//! One answer line of the plug-in host: a result, or what is wrong with it. Pure.

use serde::Deserialize;
use serde_json::Value;

use super::error::PluginError;

/// Characters of a line that is no answer, in the error about it.
const SHOWN: usize = 200;

#[derive(Deserialize)]
struct Answer {
    id: u64,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<Raised>,
}

#[derive(Deserialize)]
struct Raised {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
    traceback: Option<String>,
}

/// A result that is null is a result.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// The result of call `id` of `function`.
pub(super) fn result_of(line: &[u8], id: u64, function: &str) -> Result<Value, PluginError> {
    let protocol = |problem: String| PluginError::Protocol {
        function: function.to_owned(),
        problem,
    };
    let answer: Answer = serde_json::from_slice(line).map_err(|error| {
        protocol(format!(
            "a line that cannot be read ({error}): {}",
            start_of(line)
        ))
    })?;
    if answer.id != id {
        return Err(protocol(format!("call {} instead of {id}", answer.id)));
    }
    match (answer.result, answer.error) {
        (Some(result), None) => Ok(result),
        (None, Some(raised)) => Err(PluginError::Raised {
            function: function.to_owned(),
            kind: raised.kind,
            message: raised.message,
            traceback: raised.traceback,
        }),
        _ => Err(protocol(format!(
            "neither a result nor an error, or both: {}",
            start_of(line)
        ))),
    }
}

fn start_of(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        result_of(line.as_bytes(), 7, "rewards.score")
            .expect_err("no result")
            .to_string()
    }

    #[test]
    fn results_are_taken_as_they_are() {
        let result = |line: &str| result_of(line.as_bytes(), 7, "f").expect("a result");
        assert_eq!(
            result(r#"{"id": 7, "result": [0.5]}"#),
            serde_json::json!([0.5])
        );
        assert_eq!(result(r#"{"id": 7, "result": null}"#), Value::Null);
        assert_eq!(
            result(r#"{"id": 7, "result": 1, "error": null, "more": 2}"#),
            serde_json::json!(1)
        );
    }

    #[test]
    fn everything_else_is_an_error_that_names_the_function() {
        let texts = [
            refused(
                r#"{"id": 7, "error": {"type": "ValueError", "message": "no such label", "traceback": "..."}}"#,
            ),
            refused(r#"{"id": 8, "result": 1}"#),
            refused(r#"{"id": 7}"#),
            refused(r#"{"id": 7, "result": [NaN]}"#),
            refused("Traceback (most recent call last):\n"),
            refused(&"x".repeat(1000)).replace(&"x".repeat(200), "(200 x)"),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r#"
        rewards.score: ValueError: no such label
        rewards.score: the plug-in host answered call 8 instead of 7
        rewards.score: the plug-in host answered neither a result nor an error, or both: {"id": 7}
        rewards.score: the plug-in host answered a line that cannot be read (expected value at line 1 column 22): {"id": 7, "result": [NaN]}
        rewards.score: the plug-in host answered a line that cannot be read (expected value at line 1 column 1): Traceback (most recent call last):
        rewards.score: the plug-in host answered a line that cannot be read (expected value at line 1 column 1): (200 x)...
        "#);
    }
}
