//! Which messages are the same.

use rollout_session::Matcher;
use rollout_session::matcher::UnknownMatcher;
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::python;

/// Matches strictly, loosely, by role and content.
fn verdict(stored: &str, replayed: &str) -> String {
    let digit = |matcher: Matcher| {
        if matcher.matches(stored, replayed) {
            '1'
        } else {
            '0'
        }
    };
    Matcher::ALL.into_iter().map(digit).collect()
}

fn call(arguments: &Value) -> String {
    json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": arguments}}]})
    .to_string()
}

#[test]
fn names_are_read_and_written() {
    for matcher in Matcher::ALL {
        assert_eq!(matcher.to_string().parse(), Ok(matcher));
    }
    let unknown = "my.module".parse::<Matcher>();
    assert_eq!(unknown, Err(UnknownMatcher("my.module".to_owned())));
}

/// `(stored, replayed, strict, loose, role and content)`.
#[test]
fn parts_are_compared_as_python_compares_them() {
    for (stored, replayed, expected) in [
        (
            r#"{"role":"user","content":"a"}"#,
            r#"{ "content" : "\u0061", "role":"user","name":"n"}"#,
            "111",
        ),
        (
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"user","content":"a "}"#,
            "000",
        ),
        (
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"system","content":"a"}"#,
            "000",
        ),
        (
            r#"{"role":"a","content":null,"tool_calls":[]}"#,
            r#"{"role":"a","content":[ ],"reasoning_content":""}"#,
            "111",
        ),
        (
            r#"{"role":"a","content":"x","reasoning_content":"r"}"#,
            r#"{"role":"a","content":"x"}"#,
            "001",
        ),
        (r#"{"content":1}"#, r#"{"content":true}"#, "111"),
        (
            r#"{"content":{"a":1,"b":[2.0]}}"#,
            r#"{"content":{"b":[2],"a":1.0}}"#,
            "111",
        ),
        (r#"{"content":[1,2]}"#, r#"{"content":[2,1]}"#, "000"),
        (r#"{"content":{}}"#, r#"{"content":null}"#, "000"),
        (r#"{"content":0}"#, r#"{"content":null}"#, "000"),
        (
            r#"{"content":"x","content":"y"}"#,
            r#"{"content":"y"}"#,
            "111",
        ),
        (r#"{"content":"x","content":null}"#, r"{}", "111"),
        (r#"{"content":"\ud800"}"#, r#"{"content":"\ud801"}"#, "000"),
        (
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
            r#"{"content":"a b"}"#,
            "111",
        ),
        (
            r#"{"content":[{"type":"text","text":""}]}"#,
            r#"{"content":null}"#,
            "111",
        ),
        (
            r#"{"content":[{"type":"image","text":"a"}]}"#,
            r#"{"content":"a"}"#,
            "000",
        ),
        (
            r#"{"tool_calls":[{"id":1,"index":0}]}"#,
            r#"{"tool_calls":[{"index":7,"id":1.0}]}"#,
            "111",
        ),
        (
            r#"{"tool_calls":[{"id":1}]}"#,
            r#"{"tool_calls":[{"id":1,"x":null}]}"#,
            "001",
        ),
        (r#"{"tool_calls":[1]}"#, r#"{"tool_calls":[true]}"#, "111"),
        (r#"{"tool_calls":"x"}"#, r#"{"tool_calls":["x"]}"#, "001"),
        (r"[]", r"{}", "000"),
    ] {
        assert_eq!(verdict(stored, replayed), expected, "{stored} {replayed}");
        assert_eq!(verdict(replayed, stored), expected, "{replayed} {stored}");
    }
}

#[test]
fn arguments_may_be_spelled_otherwise() {
    let same = [
        (json!(""), json!("{}")),
        (json!(null), json!({})),
        (
            json!("{\"a\": 1, \"b\": [1, 2]}"),
            json!(" {\"b\":[1.0,2e0],\"a\":1}\n"),
        ),
        (json!("{\"a\": 0.1}"), json!({"a": 0.1})),
        (json!("{\"a\": \"\\u00e9\"}"), json!("{\"a\": \"é\"}")),
        (
            json!("{\"a\": 100000000000000000000000001}"),
            json!("{\"a\": 1.00000000000000000000000001e26}"),
        ),
    ];
    for (left, right) in &same {
        assert_eq!(verdict(&call(left), &call(right)), "011", "{left} {right}");
        assert_eq!(verdict(&call(right), &call(left)), "011", "{right} {left}");
    }
    let different = [
        (json!("{\"a\": 1}"), json!("{\"a\": true}")),
        (json!("{\"a\": 1}"), json!("{\"a\": \"1\"}")),
        (json!("{\"a\": 1, \"a\": 1}"), json!("{\"a\": 1}")),
        (json!("{\"a\": NaN}"), json!("{ \"a\": NaN}")),
        (json!("{\"a\": [1, 2]}"), json!("{\"a\": [2, 1]}")),
        (json!("{\"a\": \"\t\"}"), json!("{\"a\": \"\\t\"}")),
        (json!("[1]"), json!("[1.0]")),
        (json!("{\"a\": 1"), json!("{\"a\":1")),
        (json!([]), json!({})),
        (json!(1), json!(2)),
    ];
    for (left, right) in &different {
        assert_eq!(verdict(&call(left), &call(right)), "001", "{left} {right}");
        assert_eq!(verdict(&call(right), &call(left)), "001", "{right} {left}");
    }
    // The text is exact, the value went through a float.
    let exact = call(&json!("{\"a\": 0.1000000000000000055}"));
    let rounded = call(&json!("@")).replace("\"@\"", "{\"a\": 0.1000000000000000055}");
    assert_eq!(verdict(&exact, &rounded), "001");
}

impl Dice {
    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }

    fn number(&mut self) -> &'static str {
        self.pick(&[
            "0",
            "-0",
            "0.0",
            "-0.0",
            "1",
            "1.0",
            "1e0",
            "true",
            "false",
            "10e-1",
            "0.1",
            "0.10000000000000000555",
            "9007199254740993",
            "9007199254740992",
            "9007199254740993.0",
            "1e22",
            "10000000000000000000000",
            "1e999",
            "-1e999",
            "1e-400",
            "123456789012345678901234567890",
            "1.5",
            "null",
        ])
    }

    fn value(&mut self, depth: usize) -> String {
        match self.roll(if depth == 0 { 3 } else { 5 }) {
            0 => self.number().to_owned(),
            1 => self
                .pick(&[
                    r#""""#,
                    r#""a""#,
                    r#""\u0061""#,
                    r#""1""#,
                    r#""\ud83d\ude00""#,
                    "\"😀\"",
                    r#""\ud800""#,
                    "\"é\\n\"",
                ])
                .to_owned(),
            2 => self.pick(&["{}", "[]", "[ ]", "{ }"]).to_owned(),
            3 => {
                let items: Vec<String> = (0..self.roll(3)).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", items.join(", "))
            }
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: usize) -> String {
        let fields: Vec<String> = (0..self.roll(4))
            .map(|_| {
                let key = self.pick(&["a", "b", "\\u0061", "index", "c"]);
                format!("\"{key}\" :{}", self.value(depth))
            })
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    fn arguments(&mut self) -> String {
        match self.roll(6) {
            0 => self
                .pick(&[
                    "null", "\"\"", "{}", "\"{}\"", "[]", "1", "\" \"", "\"null\"",
                ])
                .to_owned(),
            1 => self.object(2),
            // Bounded numbers: what a decimal cannot hold is refused here and there for other reasons.
            _ => Value::String(self.object(2)).to_string(),
        }
    }

    fn call(&mut self) -> String {
        let mut fields = vec![format!(
            "\"id\":{}",
            self.pick(&["\"c\"", "1", "1.0", "true"])
        )];
        if self.roll(2) == 0 {
            fields.push(format!("\"index\":{}", self.roll(3)));
        }
        let arguments = self.arguments();
        fields.push(format!(
            "\"function\":{{\"name\":\"f\",\"arguments\":{arguments}}}"
        ));
        if self.roll(2) == 0 {
            fields.reverse();
        }
        format!("{{{}}}", fields.join(","))
    }

    fn message(&mut self) -> String {
        let mut fields = vec![format!(
            "\"role\":{}",
            self.pick(&["\"user\"", "\"\\u0075ser\""])
        )];
        match self.roll(5) {
            0 => {}
            1 => fields.push(format!(
                "\"content\":{}",
                self.pick(&[
                    "\"a b\"",
                    r#"[{"type":"text","text":"a"},{"text":"b","type":"text"}]"#,
                    "\"\"",
                    r#"[{"type":"text","text":""}]"#
                ])
            )),
            2 => fields.push("\"content\":null".to_owned()),
            _ => fields.push(format!("\"content\":{}", self.value(2))),
        }
        if self.roll(3) == 0 {
            fields.push(format!(
                "\"reasoning_content\":{}",
                self.pick(&["null", "\"\"", "\"r\"", "[]"])
            ));
        }
        if self.roll(2) == 0 {
            let calls: Vec<String> = (0..=self.roll(2)).map(|_| self.call()).collect();
            fields.push(format!("\"tool_calls\":[{}]", calls.join(",")));
        }
        if self.roll(2) == 0 {
            fields.reverse();
        }
        format!("{{{}}}", fields.join(", "))
    }
}

#[test]
fn python_says_the_same_of_generated_messages() {
    let mut dice = Dice(7);
    let mut pairs: Vec<(String, String)> = Vec::new();
    for _ in 0..12_000 {
        pairs.push((dice.message(), dice.message()));
    }
    // Calls alone, so that most pairs differ in nothing but their arguments.
    for _ in 0..8_000 {
        let mut with = || {
            let arguments = dice.arguments();
            format!(r#"{{"role":"a","tool_calls":[{{"function":{{"arguments":{arguments}}}}}]}}"#)
        };
        pairs.push((with(), with()));
    }
    let input: Vec<String> = pairs.iter().map(|pair| json!(pair).to_string()).collect();
    let answers = python::run("matcher.py", &[], &(input.join("\n") + "\n"));
    let mut seen = std::collections::BTreeMap::new();
    for ((stored, replayed), expected) in pairs.iter().zip(answers.lines()) {
        *seen.entry(expected.to_owned()).or_insert(0usize) += 1;
        assert_eq!(verdict(stored, replayed), expected, "{stored}\n{replayed}");
    }
    // Every verdict that there is came up often enough to mean something.
    for verdict in ["000", "001", "011", "111"] {
        assert!(
            seen.get(verdict).is_some_and(|count| *count > 50),
            "{seen:?}"
        );
    }
    assert_eq!(answers.lines().count(), pairs.len());
}
