//! JSON values as Python prints them, for the error texts of SGLang's body validation.

use serde_json::Value;

/// `repr()` of a value.
pub(crate) fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => repr_str(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(repr).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", repr_str(key), repr(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// `repr()` of a text: single quotes, unless only double ones avoid an escape.
pub(crate) fn repr_str(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push(quote);
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            '\\' => shown.push_str("\\\\"),
            c if c == quote => {
                shown.push('\\');
                shown.push(c);
            }
            c if c.is_control() => shown.push_str(&escaped(c)),
            c => shown.push(c),
        }
    }
    shown.push(quote);
    shown
}

fn escaped(character: char) -> String {
    format!("\\x{:02x}", u32::from(character))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_look_as_in_python() {
        let value = json!({"a": null, "b": [true, 1, 2.5], "c": "it's", "d": "say \"it's\"\n"});
        assert_eq!(
            repr(&value),
            r#"{'a': None, 'b': [True, 1, 2.5], 'c': "it's", 'd': 'say "it\'s"\n'}"#
        );
    }
}
