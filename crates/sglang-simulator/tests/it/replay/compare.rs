//! Compares an answer with a captured one: status, headers, keys with their order and nesting, types, nulls, and values.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::exceptions::{Allowed, Exceptions};
use super::player::Observed;

/// Differences that no exception allows.
pub(crate) fn compare(
    capture: u32,
    expected: &Value,
    observed: &Observed,
    exceptions: &mut Exceptions,
) -> Vec<String> {
    let mut comparison = Comparison {
        capture,
        exceptions,
        differences: Vec::new(),
        path: Vec::new(),
    };
    comparison.response(expected, observed);
    comparison.differences
}

struct Comparison<'a> {
    capture: u32,
    exceptions: &'a mut Exceptions,
    differences: Vec<String>,
    path: Vec<String>,
}

impl Comparison<'_> {
    fn response(&mut self, expected: &Value, observed: &Observed) {
        let dropped = expected.get("exception").is_some();
        let Observed::Answer {
            status,
            headers,
            sized,
            body,
        } = observed
        else {
            if !dropped {
                self.differ("no answer");
            }
            return;
        };
        if dropped {
            return self.differ("an answer where the real server closed the connection");
        }
        self.at("status", |this| {
            this.values(&expected["status"], &json!(status));
        });
        for (name, value) in expected["headers"].as_object().into_iter().flatten() {
            let shown = match name.as_str() {
                "content-length" => sized.then(|| value.clone()),
                "transfer-encoding" => (!sized).then(|| value.clone()),
                name => headers
                    .get(name)
                    .and_then(|value| value.to_str().ok())
                    .map(Value::from),
            };
            self.at(&format!("headers.{name}"), |this| match shown {
                Some(shown) => this.values(value, &shown),
                None => this.need(Allowed::Presence, "is missing"),
            });
        }
        if let Some(running) = expected.get("num_running_reqs") {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            return self.at("num_running_reqs", |this| {
                this.values(running, &body["loads"][0]["num_running_reqs"]);
            });
        }
        if let Some(raw) = expected.get("sse_raw").and_then(Value::as_str) {
            return self.at("events", |this| this.events(raw, body));
        }
        if let Some(text) = expected.get("body_text").and_then(Value::as_str) {
            if text.starts_with("# TYPE") {
                return self.at("metrics", |this| this.metrics(text, body));
            }
            return self.at("body", |this| this.values(&json!(text), &json!(body)));
        }
        match serde_json::from_str(body) {
            Ok(body) => self.at("body", |this| this.values(&expected["body"], &body)),
            Err(error) => self.differ(&format!("the body is no JSON: {error}: {body}")),
        }
    }

    fn at(&mut self, step: &str, compare: impl FnOnce(&mut Self)) {
        let depth = self.path.len();
        self.path.extend(step.split('.').map(str::to_owned));
        compare(self);
        self.path.truncate(depth);
    }

    fn differ(&mut self, what: &str) {
        self.differences
            .push(format!("{}: {what}", self.path.join(".")));
    }

    /// A difference, unless it is allowed.
    fn need(&mut self, what: Allowed, text: &str) {
        if !self.exceptions.allow(self.capture, &self.path, what, None) {
            self.differ(text);
        }
    }

    fn values(&mut self, expected: &Value, actual: &Value) {
        if is_cut(expected) {
            let fits = match self.path.last().map(String::as_str) {
                Some("output_ids") => actual
                    .as_array()
                    .is_some_and(|ids| ids.iter().all(Value::is_u64)),
                _ => actual.is_string(),
            };
            if !fits {
                self.differ(&format!("{actual} is of another type"));
            }
            return;
        }
        match (expected, actual) {
            (Value::Object(expected), Value::Object(actual)) => self.objects(expected, actual),
            (Value::Array(expected), Value::Array(actual)) => self.lists(expected, actual),
            _ if kind(expected) != kind(actual) => {
                let text = format!(
                    "expected {} {expected}, got {} {actual}",
                    kind(expected),
                    kind(actual)
                );
                self.differ(&text);
            }
            _ if expected != actual => {
                let values = Some((expected, actual));
                if !self
                    .exceptions
                    .allow(self.capture, &self.path, Allowed::Value, values)
                {
                    self.differ(&format!("expected {expected}, got {actual}"));
                }
            }
            _ => {}
        }
    }

    fn objects(
        &mut self,
        expected: &serde_json::Map<String, Value>,
        actual: &serde_json::Map<String, Value>,
    ) {
        for (key, value) in expected {
            let got = actual.get(key);
            self.at(key, |this| match got {
                Some(got) => this.values(value, got),
                None => this.need(Allowed::Presence, "is missing"),
            });
        }
        for key in actual.keys().filter(|key| !expected.contains_key(*key)) {
            self.at(key, |this| this.need(Allowed::Presence, "is too much"));
        }
        let common = |of: &serde_json::Map<String, Value>,
                      other: &serde_json::Map<String, Value>| {
            of.keys()
                .filter(|key| other.contains_key(*key))
                .cloned()
                .collect::<Vec<_>>()
        };
        let (order, got) = (common(expected, actual), common(actual, expected));
        if order != got {
            self.differ(&format!("expected the order {order:?}, got {got:?}"));
        }
    }

    fn lists(&mut self, expected: &[Value], actual: &[Value]) {
        let cut = expected.iter().any(is_cut);
        let whole: Vec<&Value> = expected.iter().filter(|item| !is_cut(item)).collect();
        if !cut && whole.len() != actual.len() {
            self.need(
                Allowed::Length,
                &format!("expected {} entries, got {}", whole.len(), actual.len()),
            );
        }
        let Some(last) = whole.last() else {
            return;
        };
        for (index, item) in actual.iter().enumerate() {
            let like = whole.get(index).unwrap_or(last);
            self.at("[]", |this| this.values(like, item));
        }
    }

    fn events(&mut self, expected: &str, actual: &str) {
        let (expected, actual) = (split_events(expected), split_events(actual));
        let cut = expected.iter().any(Value::is_string);
        let whole: Vec<&Value> = expected.iter().filter(|event| !event.is_string()).collect();
        if !cut && whole.len() == actual.len() {
            for (expected, actual) in whole.iter().zip(&actual) {
                self.at("[]", |this| this.values(expected, actual));
            }
            return;
        }
        if !cut {
            self.need(
                Allowed::Length,
                &format!("expected {} events, got {}", whole.len(), actual.len()),
            );
        }
        let skeletons = |events: &mut dyn Iterator<Item = &Value>| {
            events.map(skeleton).collect::<BTreeSet<_>>()
        };
        let (expected, actual) = (
            skeletons(&mut whole.into_iter()),
            skeletons(&mut actual.iter()),
        );
        for missing in expected.difference(&actual) {
            self.differ(&format!("no event is like {missing}"));
        }
        for surplus in actual.difference(&expected) {
            self.differ(&format!("no captured event is like {surplus}"));
        }
    }

    fn metrics(&mut self, expected: &str, actual: &str) {
        let (expected, actual) = (series(expected), series(actual));
        for missing in expected.difference(&actual) {
            self.differ(&format!("{missing} is missing"));
        }
        for surplus in actual.difference(&expected) {
            self.differ(&format!("{surplus} is too much"));
        }
    }
}

fn is_cut(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with("<cut"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Keys, nesting and types of an event; a list is as its first entry.
fn skeleton(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.first().map(skeleton).unwrap_or_default()),
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("{key}: {}", skeleton(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        scalar => kind(scalar).into(),
    }
}

/// Events as JSON; `[DONE]` as its own text, and what was cut out as a text.
fn split_events(raw: &str) -> Vec<Value> {
    assert!(
        raw.ends_with("data: [DONE]\n\n"),
        "the end of a stream: {raw}"
    );
    raw.trim_end()
        .split("\n\n")
        .filter(|event| *event != "data: [DONE]")
        .map(|event| match event.strip_prefix("data: ") {
            Some(json) => {
                serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
            }
            None => Value::from(event),
        })
        .collect()
}

/// Types and series of a metrics page. Which HTTP paths were called before, and the process id, are left out; so are buckets.
fn series(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter(|line| !line.starts_with("# HELP") && !line.contains("_bucket{"))
        // the capture ends in the middle of a line
        .filter(|line| {
            line.starts_with('#')
                || line
                    .rsplit_once(' ')
                    .is_some_and(|(_, value)| value.parse::<f64>().is_ok())
        })
        .map(|line| {
            if line.starts_with('#') {
                return line.to_owned();
            }
            let name = line.rsplit_once(' ').map_or(line, |(name, _)| name);
            match name.split_once('{') {
                Some((family, labels)) if family.contains(":http_") || labels.contains("pid=") => {
                    let names: Vec<_> = labels
                        .split(',')
                        .filter_map(|label| label.split_once('='))
                        .map(|(name, _)| name)
                        .collect();
                    format!("{family}{{{}}}", names.join(","))
                }
                _ => name.to_owned(),
            }
        })
        .collect()
}
