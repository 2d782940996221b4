//! Data sets as a user writes them.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn file(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("train.jsonl");
    std::fs::write(&path, text).expect("written");
    (directory, path)
}

fn file_source(path: &str) -> Source {
    Source::File(path.into())
}

fn config(source: Source) -> DatasetConfig {
    DatasetConfig {
        source,
        rules: Rules::default(),
        slice: None,
        shuffle_seed: None,
        samples_per_prompt: 4,
    }
}

fn opened(
    text: &str,
    change: impl FnOnce(&mut DatasetConfig),
) -> (tempfile::TempDir, Result<Dataset, DatasetError>) {
    let (directory, path) = file(text.as_bytes());
    let mut config = config(Source::File(path));
    change(&mut config);
    (directory, Dataset::open(&config))
}

/// The errors of all rows, with the directory taken out.
fn errors(text: &[u8], change: impl FnOnce(&mut Rules)) -> String {
    let (directory, path) = file(text);
    let mut config = config(Source::File(path));
    change(&mut config.rules);
    let report = Dataset::open(&config).expect("a data set").check(100);
    assert_eq!(report.bad, report.errors.len() as u64);
    let texts: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
    texts
        .join("\n")
        .replace(&format!("{}/", directory.path().display()), "")
}

fn labels(dataset: &Dataset, cursor: &mut Cursor, count: usize) -> Vec<i64> {
    (0..count)
        .map(|_| {
            dataset
                .next_group(cursor)
                .expect("a row")
                .label
                .as_i64()
                .expect("a number")
        })
        .collect()
}

fn numbered(rows: usize) -> Vec<Value> {
    (0..rows)
        .map(|row| json!({"prompt": format!("p{row}"), "label": row}))
        .collect()
}

#[test]
fn a_row_gives_prompt_label_metadata_and_tools() {
    let row = r#"{"question": [{"role": "user", "content": "2+2?"}], "answer": "4", "meta": {"source": "mine"}, "tools": "[{\"type\": \"function\"}]", "more": 1}"#;
    let (_directory, dataset) = opened(row, |config| {
        config.rules.keys = Keys {
            prompt: "question".into(),
            label: Some("answer".into()),
            metadata: Some("meta".into()),
            tools: Some("tools".into()),
        };
    });
    let group = dataset
        .expect("a data set")
        .next_group(&mut Cursor::default())
        .expect("a row");
    assert_eq!(group.prompt, json!([{"role": "user", "content": "2+2?"}]));
    assert_eq!(group.label, json!("4"));
    assert_eq!(group.tools, Some(json!([{"type": "function"}])));
    assert_eq!(
        Value::Object(group.metadata),
        json!({"source": "mine", "tools": [{"type": "function"}]})
    );
    assert_eq!(group.row, 0);
}

#[test]
fn what_a_row_leaves_out_is_empty() {
    let (_directory, dataset) = opened("{\"prompt\": \"p\", \"metadata\": null}", |_| {});
    let group = dataset
        .expect("a data set")
        .next_group(&mut Cursor::default())
        .expect("a row");
    assert_eq!(
        (group.label, group.metadata, group.tools),
        (Value::Null, Map::new(), None)
    );
}

#[test]
fn groups_walk_the_epochs_and_their_indices_grow_for_ever() {
    let dataset = Dataset::open(&config(Source::Inline(numbered(3)))).expect("a data set");
    let mut cursor = Cursor::default();
    assert_eq!(labels(&dataset, &mut cursor, 7), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(
        cursor,
        Cursor {
            epoch: 2,
            offset: 1,
            group_index: 7,
            sample_index: 28
        }
    );
    let next = dataset.next_group(&mut cursor).expect("a row");
    assert_eq!((next.group_index, next.first_sample_index), (7, 28));
}

#[test]
fn each_epoch_has_the_order_of_seed_plus_epoch() {
    let mut config = config(Source::Inline(numbered(12)));
    config.slice = Some("[2:]".parse().expect("a slice"));
    config.shuffle_seed = Some(42);
    let dataset = Dataset::open(&config).expect("a data set");
    let mut cursor = Cursor::default();
    let shifted = |order: [i64; 10]| order.map(|place| place + 2);
    assert_eq!(
        labels(&dataset, &mut cursor, 10),
        shifted([7, 3, 2, 8, 5, 6, 9, 4, 0, 1])
    );
    assert_eq!(
        labels(&dataset, &mut cursor, 10),
        shifted([8, 1, 5, 6, 9, 7, 3, 2, 4, 0])
    );
}

#[test]
fn a_stored_cursor_continues_where_it_was() {
    let mut config = config(Source::Inline(numbered(9)));
    config.shuffle_seed = Some(7);
    let dataset = Dataset::open(&config).expect("a data set");
    let mut cursor = Cursor::default();
    labels(&dataset, &mut cursor, 14);
    let stored = serde_json::to_string(&cursor).expect("json");
    let ahead = labels(&dataset, &mut cursor, 10);
    let again = Dataset::open(&config).expect("a data set");
    let mut restored: Cursor = serde_json::from_str(&stored).expect("a cursor");
    assert_eq!(labels(&again, &mut restored, 10), ahead);
}

#[test]
fn a_bad_row_is_passed_and_takes_no_index() {
    let (_directory, dataset) = opened("{\"prompt\": \"a\"}\n{oops\n{\"prompt\": \"c\"}\n", |_| {});
    let dataset = dataset.expect("a data set");
    let mut cursor = Cursor::default();
    assert_eq!(
        dataset.next_group(&mut cursor).expect("a row").prompt,
        json!("a")
    );
    let error = dataset.next_group(&mut cursor).expect_err("not JSON");
    assert_eq!((error.location.line, error.location.column), (2, Some(2)));
    let third = dataset.next_group(&mut cursor).expect("a row");
    assert_eq!(
        (third.prompt, third.group_index, third.row),
        (json!("c"), 1, 2)
    );
}

#[test]
fn errors_name_file_line_and_column() {
    let text = b"{\"prompt\": \"fine\"}\n\n{\"prompt\": \"cut\n[1]\n{\"prompt\": \"caf\xe9\"}\n{\"prompt\": NaN}\n{\"question\": \"q\", \"answer\": 1}\n  {}\n";
    insta::assert_snapshot!(errors(text, |_| {}), @r"
    train.jsonl:3:15: invalid JSON: EOF while parsing a string; a row is one JSON object on one line
    train.jsonl:4:1: the row is a list, expected an object
    train.jsonl:5:16: invalid UTF-8
    train.jsonl:6:12: invalid JSON: expected value; a row is one JSON object on one line
    train.jsonl:7:1: the key `prompt` is missing; the row has `question`, `answer`
    train.jsonl:8:3: the key `prompt` is missing; the row has no keys
    ");
}

#[test]
fn a_key_that_is_there_twice_is_an_error() {
    let text = br#"{"prompt": "a", "label": 1, "prompt": "b"}
{"prompt": "a", "metadata": {"id": 1, "more": [{"x": 1, "x": 2}]}}
{"prompt": [{"role": "user", "content": "x", "role": "system"}]}
{"prompt": "a", "tools": "[{\"type\": 1, \"type\": 2}]"}
{"prompt": "a", "metadata": {"prompt": "b"}}
"#;
    insta::assert_snapshot!(errors(text, |_| {}), @r"
    train.jsonl:1:29: the key `prompt` is here for the second time; remove one of the two
    train.jsonl:2:57: the key `x` is here for the second time; remove one of the two
    train.jsonl:3:46: the key `role` is here for the second time; remove one of the two
    train.jsonl:4:26: `tools` is a JSON text with the same key twice, expected a list of tool specifications, or the JSON text of one
    ");
}

#[test]
fn errors_say_which_type_was_expected() {
    let text = br#"{"prompt": 7}
{"prompt": ""}
{"prompt": []}
{"prompt": ["hello"]}
{"prompt": [{"role": "user", "content": "x"}, {"content": "x"}]}
{"prompt": [{"role": "user"}]}
{"prompt": "p", "metadata": "text"}
{"prompt": "p", "tools": "[oops"}
{"prompt": "p", "tools": {"type": "function"}}
{"prompt": "p", "tools": [1]}
{"prompt": [{"role": null, "content": "x"}]}"#;
    insta::assert_snapshot!(errors(text, |_| {}), @r#"
    train.jsonl:1:12: `prompt` is a number, expected a text or a list of chat messages
    train.jsonl:2:12: `prompt` is an empty text, expected a text with at least one character
    train.jsonl:3:12: `prompt` is an empty list, expected at least one message
    train.jsonl:4:13: `prompt[0]` is a text, expected a chat message: an object with `role` and `content`
    train.jsonl:5:47: `prompt[1].role` is missing, expected a text such as "user"
    train.jsonl:6:13: `prompt[0].content` is missing, expected a text or a list of content parts
    train.jsonl:7:29: `metadata` is a text, expected an object
    train.jsonl:8:26: `tools` is a text that is not JSON, expected a list of tool specifications, or the JSON text of one
    train.jsonl:9:26: `tools` is an object, expected a list of tool specifications, or the JSON text of one
    train.jsonl:10:27: `tools[0]` is a number, expected a list of tool specifications, or the JSON text of one
    train.jsonl:11:22: `prompt[0].role` is null, expected a text such as "user"
    "#);
}

#[test]
fn a_message_with_tool_calls_needs_no_content() {
    let text = br#"{"prompt": [{"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "assistant", "content": null, "tool_calls": []}]}"#;
    assert_eq!(errors(text, |rules| rules.require_messages = true), "");
}

#[test]
fn labels_are_checked_for_what_compares_them() {
    let text = br#"{"prompt": "p"}
{"prompt": "p", "label": null}
{"prompt": "p", "label": " "}
{"prompt": "p", "label": [1]}
{"prompt": "p", "label": true}
{"prompt": "p", "label": 3.5}
{"prompt": "p", "label": "4"}"#;
    assert_eq!(errors(text, |rules| rules.label = LabelRule::Optional), "");
    insta::assert_snapshot!(errors(text, |rules| rules.label = LabelRule::Required), @r"
    train.jsonl:1:1: the key `label` is missing; the row has `prompt`
    train.jsonl:2:26: `label` is null, expected a value
    ");
    insta::assert_snapshot!(errors(text, |rules| rules.label = LabelRule::TextOrNumber), @r"
    train.jsonl:1:1: the key `label` is missing; the row has `prompt`
    train.jsonl:2:26: `label` is null, expected a text that is not blank, or a number
    train.jsonl:3:26: `label` is an empty text, expected a text that is not blank, or a number
    train.jsonl:4:26: `label` is a list, expected a text that is not blank, or a number
    train.jsonl:5:26: `label` is a boolean, expected a text that is not blank, or a number
    ");
}

#[test]
fn agents_need_messages() {
    let text =
        b"{\"prompt\": [{\"role\": \"user\", \"content\": \"x\"}]}\n{\"prompt\": \"text\"}\n";
    insta::assert_snapshot!(
        errors(text, |rules| rules.require_messages = true),
        @r#"train.jsonl:2:12: `prompt` is a string; agents send the prompt as chat messages, so write a list: [{"role": "user", "content": "..."}]"#
    );
}

#[test]
fn rows_of_a_manifest_are_named_by_their_place() {
    let rows = vec![json!({"prompt": "a"}), json!({"question": "b"}), json!("c")];
    let report = Dataset::open(&config(Source::Inline(rows)))
        .expect("a data set")
        .check(10);
    let texts: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(texts.join("\n"), @r"
    dataset.inline[1]: the key `prompt` is missing; the row has `question`
    dataset.inline[2]: the row is a text, expected an object
    ");
}

#[test]
fn a_text_is_read_like_a_file_of_its_name() {
    let text = "\u{feff}{\"prompt\": \"a\"}\r\n\r\n  {\"prompt\": 7}\r\n{\"prompt\": \"c\"\n";
    let source = Source::Text {
        name: "rows.jsonl".into(),
        text: text.into(),
    };
    let dataset = Dataset::open(&config(source)).expect("a data set");
    assert_eq!(dataset.rows(), 3);
    let errors = dataset.check(10).errors;
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(texts.join("\n"), @r"
    rows.jsonl:3:14: `prompt` is a number, expected a text or a list of chat messages
    rows.jsonl:4:14: invalid JSON: EOF while parsing an object; a row is one JSON object on one line
    ");
}

#[test]
fn a_prompt_is_found_in_its_line() {
    let (_directory, dataset) = opened("{\"label\": 1, \"prompt\": \"a\"}\n", |_| {});
    let dataset = dataset.expect("a data set");
    let place = dataset.prompt_location(0).to_string();
    assert!(place.ends_with("/train.jsonl:1:24"), "{place}");
    let inline = Dataset::open(&config(Source::Inline(numbered(1)))).expect("a data set");
    assert_eq!(inline.prompt_location(0).to_string(), "dataset.inline[0]");
}

#[test]
fn a_data_set_that_cannot_be_used_says_why() {
    let refused = |text: &str, change: fn(&mut DatasetConfig)| {
        let (directory, dataset) = opened(text, change);
        let error = dataset.expect_err("refused");
        let directory = format!("{}/", directory.path().display());
        format!(
            "{}: {}",
            error.label(),
            error.to_string().replace(&directory, "")
        )
    };
    let texts = [
        refused("", |_| {}),
        refused("\n \n", |_| {}),
        refused("{}\n", |config| config.slice = "[0:2]".parse().ok()),
        refused("{}\n", |config| config.slice = "[1:]".parse().ok()),
        refused("{}\n", |config| config.source = file_source("absent.jsonl")),
        refused("{}\n", |config| {
            config.source = file_source("train.parquet");
        }),
        refused("{}\n", |config| config.source = file_source("/tmp")),
        refused("{}\n", |config| config.source = Source::Inline(vec![])),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r"
    empty: the data set train.jsonl is empty: it has no rows
    empty: the data set train.jsonl is empty: it has no rows
    slice: the slice [0:2] is outside the data set train.jsonl of 1 rows
    slice: the slice [1:] is outside the data set train.jsonl of 1 rows
    read: cannot read the data set absent.jsonl
    format: the data set train.parquet is a parquet file; only JSON lines (.jsonl) are supported
    read: cannot read the data set /tmp
    empty: the data set dataset.inline is empty: it has no rows
    ");
}

#[test]
fn a_check_counts_all_and_returns_the_first() {
    let rows = (0..5000)
        .map(|row| {
            if row % 3 == 0 {
                json!({})
            } else {
                json!({"prompt": "p"})
            }
        })
        .collect();
    let dataset = Dataset::open(&config(Source::Inline(rows))).expect("a data set");
    let report = dataset.check(4);
    assert_eq!((report.rows, report.bad), (5000, 1667));
    assert_eq!(
        report
            .errors
            .iter()
            .map(|error| error.location.line)
            .collect::<Vec<_>>(),
        [1, 4, 7, 10]
    );
    assert!(dataset.check(0).errors.is_empty());
}

#[test]
fn a_fingerprint_changes_with_what_decides_the_order() {
    let base = config(Source::Inline(numbered(5)));
    let print = |change: fn(&mut DatasetConfig)| {
        let mut config = base.clone();
        change(&mut config);
        Dataset::open(&config)
            .expect("a data set")
            .fingerprint()
            .to_owned()
    };
    let same = print(|_| {});
    assert_eq!(print(|_| {}), same);
    assert_ne!(print(|config| config.shuffle_seed = Some(1)), same);
    assert_ne!(print(|config| config.slice = "[1:]".parse().ok()), same);
    assert_ne!(
        print(|config| config.source = Source::Inline(numbered(6))),
        same
    );
}

proptest! {
    #[test]
    fn every_epoch_hands_out_every_row_once(rows in 1_usize..60, start in 0_usize..60, seed in any::<Option<i64>>(), epochs in 1_usize..4) {
        let start = start % rows;
        let mut config = config(Source::Inline(numbered(rows)));
        config.slice = Some(Slice { start: start as u64, end: None });
        config.shuffle_seed = seed;
        let dataset = Dataset::open(&config).expect("a data set");
        let mut cursor = Cursor::default();
        for _ in 0..epochs {
            let mut seen = labels(&dataset, &mut cursor, rows - start);
            seen.sort_unstable();
            let expected: Vec<i64> = (i64::try_from(start).unwrap()..i64::try_from(rows).unwrap()).collect();
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn no_line_makes_it_panic(line in prop::collection::vec(any::<u8>(), 0..200), messages in any::<bool>()) {
        let rules = Rules { require_messages: messages, label: LabelRule::TextOrNumber, ..Rules::default() };
        let _ = row::parse(&line, &rules);
    }
}
