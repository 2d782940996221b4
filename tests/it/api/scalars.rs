//! Plain scalars mean what they mean to kubectl. Expectations are the output of sigs.k8s.io/yaml 1.6, which kubectl 1.37 uses.

use rollout_operator::api::manifest::{self, Sources};
use serde_json::{Value, json};

fn read(scalar: &str) -> Sources {
    manifest::read_text("scalar.yaml", &format!("a: {scalar}\n"))
}

fn value(scalar: &str) -> Value {
    let sources = read(scalar);
    assert!(
        sources.findings.iter().all(|finding| !finding.is_error()),
        "{scalar}"
    );
    sources.documents[0].value["a"].clone()
}

#[test]
fn a_scalar_means_what_it_means_to_kubectl() {
    let table = [
        ("y", json!(true)),
        ("Y", json!(true)),
        ("n", json!(false)),
        ("yes", json!(true)),
        ("on", json!(true)),
        ("Off", json!(false)),
        ("TRUE", json!(true)),
        ("oN", json!("oN")),
        ("yEs", json!("yEs")),
        ("010", json!(8)),
        ("08", json!(8)),
        ("0o17", json!(15)),
        ("0b101", json!(5)),
        ("0x1F", json!(31)),
        ("0X1f", json!(31)),
        ("1_000", json!(1000)),
        ("0_8", json!(8)),
        ("_1", json!("_1")),
        ("12:30", json!("12:30")),
        ("2024-01-01", json!("2024-01-01")),
        ("1e3", json!(1000)),
        ("1E5", json!(100_000)),
        ("32.0", json!(32)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("+.5", json!(0.5)),
        ("+5", json!(5)),
        ("-0x10", json!(-16)),
        ("-010", json!(-8)),
        ("0777", json!(511)),
        ("1_0.5", json!(10.5)),
        ("1.", json!(1)),
        ("0x", json!("0x")),
        ("0xG", json!("0xG")),
        ("00", json!(0)),
        ("0B11", json!(3)),
        ("0.0", json!(0)),
        ("-0", json!(0)),
        (
            "18446744073709551615",
            json!(18_446_744_073_709_551_615_u64),
        ),
        ("1e400", json!("1e400")),
        ("~", Value::Null),
        ("Null", Value::Null),
        ("=", json!("=")),
        ("!!str 5", json!("5")),
        ("! 5", json!("5")),
        ("'no'", json!("no")),
        ("\"010\"", json!("010")),
    ];
    for (scalar, expected) in table {
        assert_eq!(value(scalar), expected, "{scalar}");
    }
}

#[test]
fn the_author_is_told_where_parsers_disagree() {
    for scalar in [
        "y", "NO", "off", "010", "-010", "0o17", "0b1", "1_000", "08", "01.5",
    ] {
        assert_eq!(read(scalar).findings.len(), 1, "{scalar}");
    }
    for scalar in [
        "true",
        "0",
        "0.5",
        "-1",
        "0x1F",
        "'no'",
        "12:30",
        "1e3",
        "nothing",
        "00000000-aaaa",
    ] {
        assert_eq!(read(scalar).findings.len(), 0, "{scalar}");
    }
}

#[test]
fn a_key_is_a_text_as_in_json() {
    let sources = manifest::read_text("keys.yaml", "{1: a, true: b, no: c, 0x10: d}\n");
    assert_eq!(
        sources.documents[0].value,
        json!({"1": "a", "true": "b", "false": "c", "16": "d"})
    );
}

#[test]
fn merges_and_aliases_are_expanded() {
    let text = "base: &b {a: 1, b: 2}\nmore: {<<: *b, b: 3}\nlist: {<<: [*b, {c: 4}]}\nsame: *b\n";
    let sources = manifest::read_text("merge.yaml", text);
    let value = &sources.documents[0].value;
    assert_eq!(value["more"], json!({"a": 1, "b": 3}));
    assert_eq!(value["list"], json!({"a": 1, "b": 2, "c": 4}));
    assert_eq!(value["same"], value["base"]);
}

#[test]
fn documents_before_a_fault_are_read() {
    let sources = manifest::read_text("half.yaml", "a: 1\n---\nb: [\n");
    assert_eq!(sources.documents.len(), 1);
    assert_eq!(sources.findings.len(), 1);
    assert_eq!(sources.findings[0].document, 2);
}

#[test]
fn empty_documents_are_nothing() {
    for text in ["", "---\n---\n", "# only a comment\n", "\n\n"] {
        let sources = manifest::read_text("empty.yaml", text);
        assert_eq!(
            (sources.documents.len(), sources.findings.len()),
            (0, 0),
            "{text:?}"
        );
    }
}

#[test]
fn nesting_is_bounded() {
    for deep in ["[".repeat(5000), "{a: ".repeat(5000), "- ".repeat(5000)] {
        let sources = manifest::read_text("deep.yaml", &deep);
        assert_eq!(sources.documents.len(), 0);
        assert!(!sources.findings.is_empty());
    }
}
