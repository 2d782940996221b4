//! The resource definitions: checked in, small enough, and built by the house rules.

use rollout_operator::api::{crd, yaml_text};
use serde_json::Value;

fn checked_in(file: &str) -> String {
    let path = format!("{}/crds/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_checked_in_definitions_are_the_generated_ones() {
    for (file, definition) in crd::all() {
        assert!(
            checked_in(file) == yaml_text::write(&definition),
            "crds/{file} is old: run `rollout-operator crds --dir crds`"
        );
    }
}

#[test]
fn plain_kubectl_apply_can_store_them() {
    for (file, definition) in crd::all() {
        let size = yaml_text::write(&definition).len();
        assert!(size < 150_000, "{file} has {size} bytes");
    }
}

#[test]
fn any_yaml_parser_reads_the_same_definition() {
    for (file, definition) in crd::all() {
        let parsed: Value = serde_yaml::from_str(&checked_in(file)).unwrap();
        assert_eq!(parsed, definition, "{file}");
    }
}

#[test]
fn names_columns_and_subresources() {
    let shown: Vec<Value> = crd::all()
        .into_iter()
        .map(|(_, mut definition)| {
            definition["spec"]["versions"][0]["schema"] = Value::from("(left out)");
            definition
        })
        .collect();
    insta::assert_yaml_snapshot!("definitions", shown);
}

/// Calls with every schema below `spec`, with its path.
fn each_spec_schema(visit: &mut impl FnMut(&str, &Value)) {
    fn walk(at: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
        visit(at, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{at}.{name}"), property, visit);
        }
        for keyword in ["items", "additionalProperties"] {
            if schema[keyword].is_object() {
                walk(&format!("{at}[]"), &schema[keyword], visit);
            }
        }
    }
    for (file, definition) in crd::all() {
        let spec = &crd::schema(&definition)["properties"]["spec"];
        walk(&format!("{file}: spec"), spec, visit);
    }
}

#[test]
fn everything_that_a_rule_could_read_is_bounded() {
    each_spec_schema(&mut |at, schema| {
        let free_form = schema["x-kubernetes-preserve-unknown-fields"] == true;
        let missing = match schema["type"].as_str() {
            Some("string") if schema.get("enum").is_none() => schema.get("maxLength").is_none(),
            Some("array") => schema.get("maxItems").is_none(),
            Some("object") if schema["additionalProperties"].is_object() => {
                schema.get("maxProperties").is_none()
            }
            _ => false,
        };
        assert!(!missing || free_form, "{at} has no upper bound");
    });
}

#[test]
fn integers_have_a_signed_format_and_a_lower_bound() {
    each_spec_schema(&mut |at, schema| {
        if schema["type"] == "integer" {
            let format = schema["format"].as_str().unwrap_or_default();
            assert!(
                ["int32", "int64"].contains(&format),
                "{at} has format {format:?}"
            );
            let refused = at.ends_with(".logprobStartLen");
            assert!(
                refused || schema.get("minimum").is_some(),
                "{at} has no lower bound"
            );
        }
    });
}

#[test]
fn absence_is_the_only_way_to_say_nothing() {
    each_spec_schema(&mut |at, schema| {
        assert!(schema.get("nullable").is_none(), "{at} is nullable");
        let default = &schema["default"];
        let empty = default == false || default == &Value::Array(Vec::new()) || default.is_object();
        assert!(!empty, "{at} has a default that says nothing");
    });
}

#[test]
fn every_field_of_both_kinds_has_a_description() {
    each_spec_schema(&mut |at, schema| {
        // The parts that repeat others are described where they are at home.
        let repeats = at.starts_with("rolloutjobs.yaml: spec.pool.")
            || at.contains(".evaluation.datasets[].");
        let reference = [".name", ".key", ".claimName", ".path"]
            .iter()
            .any(|end| at.ends_with(end));
        let described = schema["description"]
            .as_str()
            .is_some_and(|text| text.len() > 5);
        assert!(
            described || repeats || reference || at.ends_with("[]"),
            "{at} is not described"
        );
    });
}

#[test]
fn descriptions_say_the_unit_the_default_and_no_regular_expression() {
    let mut poor = Vec::new();
    each_spec_schema(&mut |at, schema| {
        let Some(text) = schema["description"].as_str() else {
            return;
        };
        let default = &schema["default"];
        let shown = default.to_string();
        let shown = shown.strip_suffix(".0").unwrap_or(&shown);
        let unsaid = default.is_number() && !text.contains(&format!("Default: {shown}."));
        let timeless = at.ends_with("Seconds") && !text.contains(" seconds");
        let circular = text.starts_with("Its ") && text.split(' ').count() < 3;
        if unsaid || timeless || circular || text.contains('^') {
            poor.push(format!("{at} (default {default}): {text}"));
        }
    });
    assert_eq!(poor, Vec::<String>::new());
}

#[test]
fn every_pattern_compiles_and_every_rule_has_a_message() {
    each_spec_schema(&mut |at, schema| {
        if let Some(pattern) = schema["pattern"].as_str() {
            assert!(regex::Regex::new(pattern).is_ok(), "{at}: {pattern}");
            let words = rollout_operator::api::validate::words_of_pattern(pattern);
            assert!(
                words.is_some(),
                "{at}: nothing says what to write for {pattern}"
            );
        }
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let message = rule["message"].as_str().unwrap_or_default();
            assert!(
                message.len() > 15 && !message.contains('\n'),
                "{at}: {message:?}"
            );
        }
    });
}

#[test]
fn an_object_that_the_operator_never_saw_does_not_look_ready() {
    for (file, definition) in crd::all() {
        let status = &crd::schema(&definition)["properties"]["status"];
        assert_eq!(status["default"]["observedGeneration"], -1, "{file}");
        assert_eq!(
            status["properties"]["conditions"]["x-kubernetes-list-type"], "map",
            "{file}"
        );
        assert_eq!(
            status["properties"]["conditions"]["x-kubernetes-list-map-keys"][0], "type",
            "{file}"
        );
    }
}
