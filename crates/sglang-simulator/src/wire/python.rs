//! JSON values as Python prints them, for the error texts of SGLang's body validation.

use serde_json::{Number, Value};

/// `repr()` of a value.
pub(crate) fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => repr_number(number),
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

/// `repr()` of a number: exponents have a sign and two digits, and begin at 1e16 and below 1e-4.
pub(crate) fn repr_number(number: &Number) -> String {
    let Some(value) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let shown = format!("{value:e}");
        return match shown.split_once('e') {
            Some((digits, exponent)) => {
                let (sign, exponent) = match exponent.strip_prefix('-') {
                    Some(exponent) => ('-', exponent),
                    None => ('+', exponent),
                };
                format!("{digits}e{sign}{exponent:0>2}")
            }
            None => shown,
        };
    }
    format!("{value:?}")
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
    fn numbers_look_as_in_python() {
        for (number, shown) in [
            (json!(1e22), "1e+22"),
            (json!(1e16), "1e+16"),
            (json!(1.5e-7), "1.5e-07"),
            (json!(0.0001), "0.0001"),
            (json!(-1.0), "-1.0"),
            (json!(-1), "-1"),
            (json!(123_456_789.5), "123456789.5"),
            (json!(0.0), "0.0"),
        ] {
            assert_eq!(repr(&number), shown);
        }
    }

    #[test]
    fn values_look_as_in_python() {
        let value = json!({"a": null, "b": [true, 1, 2.5], "c": "it's", "d": "say \"it's\"\n"});
        assert_eq!(
            repr(&value),
            r#"{'a': None, 'b': [True, 1, 2.5], 'c': "it's", 'd': 'say "it\'s"\n'}"#
        );
    }
}
