//! Input that nobody meant to write: an answer, never a panic.

use rollout_operator::api::manifest::{self, Purpose};
use rollout_operator::api::support::Context;
use rollout_operator::api::{crd, validate, yaml_text};
use serde_json::{Value, json};

use crate::manifests::fixture;

const PURPOSE: Purpose = Purpose {
    context: Context::Local,
    complete: true,
};

fn texts() -> Vec<String> {
    [
        "good/agent.yaml",
        "good/engines.yaml",
        "good/container.json",
    ]
    .map(|name| std::fs::read_to_string(fixture(name)).unwrap())
    .to_vec()
}

fn examine(text: &str) {
    let sources = manifest::read_text("broken.yaml", text);
    let findings = manifest::examine(&sources, PURPOSE);
    let says_nothing = text
        .lines()
        .all(|line| line.trim().is_empty() || line.starts_with('#'));
    assert!(says_nothing || !sources.documents.is_empty() || !findings.is_empty());
}

#[test]
fn a_file_that_is_cut_anywhere_gets_an_answer() {
    for text in texts() {
        for end in (1..text.len()).step_by(61) {
            examine(&text[..end]);
        }
    }
}

#[test]
fn a_file_with_a_stray_character_gets_an_answer() {
    let strays = [
        "\t", "{", "]", "\"", ": ", "*x ", "&a ", "- ", "\n", "%", "\u{feff}", "\u{0}", "!", "|",
        "é",
    ];
    for text in texts() {
        for (step, stray) in (3..text.len()).step_by(67).zip(strays.iter().cycle()) {
            examine(&format!("{}{stray}{}", &text[..step], &text[step..]));
        }
    }
}

/// Calls with an object that has a value at every place of a schema, one at a time.
fn at_every_place(
    schema: &Value,
    value: &Value,
    put: &dyn Fn(Value) -> Value,
    visit: &mut dyn FnMut(&Value),
) {
    visit(&put(value.clone()));
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        at_every_place(property, value, &|inner| put(json!({ name: inner })), visit);
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            let wrap = |inner| match keyword {
                "items" => put(json!([inner])),
                _ => put(json!({ "a": inner })),
            };
            at_every_place(&schema[keyword], value, &wrap, visit);
        }
    }
}

/// Every field of both schemas with values of wrong types: an answer, and what fits is still read.
#[test]
fn any_value_in_any_field_gets_an_answer() {
    let wrong = [
        Value::Null,
        json!(3_000_000_000_u64),
        json!("two: words"),
        json!([[]]),
        json!({"a": {"b": 1}}),
    ];
    for (_, definition) in crd::all() {
        let kind = &definition["spec"]["names"]["kind"];
        let schema = &crd::schema(&definition)["properties"]["spec"];
        for value in &wrong {
            let mut places = 0;
            let put = |spec: Value| {
                json!({
                    "apiVersion": "rollout-operator.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec,
                })
            };
            at_every_place(schema, value, &put, &mut |object| {
                places += 1;
                let _ = validate::with_defaults(object);
                for violation in validate::validate(object) {
                    let message = &violation.message;
                    let is_defect = message.starts_with("cannot be read")
                        || message.contains("cannot be evaluated");
                    assert!(!is_defect, "{}: {violation}", object["spec"]);
                }
            });
            assert!(places > 100, "{places}");
        }
    }
}

#[test]
fn what_is_written_as_yaml_is_read_as_the_same_value() {
    let texts = [
        "",
        " ",
        "yes",
        "No",
        "null",
        "~",
        "1",
        "1.5",
        "0x10",
        "a: b",
        "a #b",
        "#a",
        "- a",
        "-",
        "?",
        "[a]",
        "{a}",
        "a, b",
        "'",
        "\"",
        "\\",
        "a\nb",
        "a\tb",
        "é",
        "\u{1f600}",
        "@a",
        "`a`",
        "%a",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "a:",
        ":a",
        "...",
        "---",
        "a ",
        " a",
        "y",
        "self",
    ];
    let mut value = json!({"empty": {}, "none": [], "nested": [[1, [2]], {"a": [{"b": []}]}], "number": -0.5, "big": 1e300});
    for text in texts {
        value[text] = json!({"value": text, "list": [text, [text]], "long": text.repeat(200)});
    }
    let written = yaml_text::write(&value);
    assert_eq!(serde_yaml::from_str::<Value>(&written).unwrap(), value);
    let read = manifest::read_text("written.yaml", &written);
    assert_eq!(read.findings, []);
    assert_eq!(read.documents[0].value, value);
}

/// As `kubectl get -o yaml --show-managed-fields` prints it, and as a controller sees it.
#[test]
fn what_the_api_server_adds_to_an_object_is_no_mistake() {
    let object = json!({
        "apiVersion": "rollout-operator.dev/v1alpha1",
        "kind": "SGLangPool",
        "metadata": {
            "name": "pool", "namespace": "rl", "uid": "u", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{
                "manager": "rollout-operator-job", "operation": "Apply", "apiVersion": "rollout-operator.dev/v1alpha1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {"f:engine": {}}},
            }],
        },
        "spec": {"engine": {"simulator": {}}},
    });
    assert_eq!(validate::validate(&object), []);
}
