//! The JSON reader against `serde_json`, and byte edits.

use proptest::prelude::*;
use rollout_session::json::edit::{FieldCuts, Fields, without};
use rollout_session::json::{Cursor, JsonError};
use serde_json::Value;

fn skip_all(text: &str) -> Result<(), JsonError> {
    let mut cursor = Cursor::new(text);
    cursor.skip()?;
    cursor.finish()
}

fn a_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\\\\"/\u{8}\u{c}\n\r\té𝄞]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_serde_writes_is_read(value in a_value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        prop_assert_eq!(skip_all(&text.unwrap()), Ok(()));
    }

    #[test]
    fn a_cut_text_is_refused(value in a_value(), at in any::<prop::sample::Index>()) {
        let text = serde_json::to_string(&Value::from(vec![value])).unwrap();
        let mut end = at.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert!(skip_all(&text[..end]).is_err());
    }

    #[test]
    fn nothing_panics_and_nothing_is_accepted_that_serde_refuses(text in "[\\[\\]{}:,\"\\\\ntrufalse0-9.eE+ u-]{0,24}") {
        let accepted = skip_all(&text).is_ok();
        prop_assert_eq!(accepted, serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
    }

    #[test]
    fn numbers_keep_their_bits(number in any::<f64>().prop_filter("finite", |x| x.is_finite())) {
        let text = serde_json::to_string(&number).unwrap();
        let read = Cursor::new(&text).f64().unwrap();
        prop_assert_eq!(read.to_bits(), number.to_bits());
    }

    #[test]
    fn id_lists_are_read(ids in prop::collection::vec(any::<u32>(), 0..20), spaced in any::<bool>()) {
        let text = if spaced { format!("{ids:#?}").replace(",\n]", "\n]") } else { serde_json::to_string(&ids).unwrap() };
        prop_assert_eq!(Cursor::new(&text).ids(), Ok(ids));
    }

    #[test]
    fn a_list_that_begins_as_a_known_one_is_read_as_any_other(
        ids in prop::collection::vec(0u32..2_000, 1..20),
        known in prop::collection::vec(0u32..2_000, 1..20),
        shared in any::<prop::sample::Index>(),
        begins in any::<bool>(),
        cut in 0usize..3,
    ) {
        let known = if begins { ids[..=shared.index(ids.len())].to_vec() } else { known };
        let text = serde_json::to_string(&ids).unwrap();
        let mut known_text = serde_json::to_string(&known).unwrap();
        known_text.retain(|letter| !"[]".contains(letter));
        // A text that ends within a number is no beginning, unless it happens to be one.
        known_text.truncate(known_text.len() - cut.min(known_text.len() - 1));
        let whole = cut == 0 || known_text.ends_with(',');
        let mut cursor = Cursor::new(&text);
        match cursor.ids_after(&known_text, known) {
            Ok(Some(read)) if whole => prop_assert_eq!(read, ids),
            Ok(None) => prop_assert_eq!(cursor.ids(), Ok(ids)),
            _ => {}
        }
    }

    #[test]
    fn strings_are_unescaped_as_serde_does(text in any::<String>()) {
        let json = serde_json::to_string(&text).unwrap();
        let read = Cursor::new(&json).string().unwrap();
        prop_assert_eq!(read.as_ref(), &text);
    }

    #[test]
    fn a_rewrite_removes_and_adds_and_keeps_the_rest(
        fields in prop::collection::vec(("[a-d]", a_value()), 0..6),
        removed in "[a-d]",
    ) {
        let members: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\" : {value}")).collect();
        let text = format!("{{ {} }}", members.join(" , "));
        let edited = Fields::read(&text).unwrap().rewrite(&text, |key| key == removed, "\"new\":[1]");
        let kept: Vec<&String> = members.iter().zip(&fields).filter(|(_, (key, _))| *key != removed).map(|(member, _)| member).collect();
        for member in kept {
            prop_assert!(edited.contains(member.as_str()));
        }
        let value: Value = serde_json::from_str(&edited).unwrap();
        prop_assert!(value.get(&removed).is_none());
        prop_assert_eq!(&value["new"], &serde_json::json!([1]));
    }

    #[test]
    fn cuts_leave_the_other_fields(keep in prop::collection::vec(any::<bool>(), 0..8)) {
        let members: Vec<String> = (0..keep.len()).map(|index| format!("\"k{index}\":[{index}]")).collect();
        let text = format!("{{{}}}", members.join(","));
        let mut cuts = Vec::new();
        let mut state = FieldCuts::default();
        for (field, keep) in Fields::read(&text).unwrap().iter().zip(&keep) {
            state.field(field.span.clone(), !keep, &mut cuts);
        }
        state.end(&mut cuts);
        let kept: Vec<String> = members.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(member, _)| member).collect();
        prop_assert_eq!(without(text.as_bytes(), &cuts), format!("{{{}}}", kept.join(",")).into_bytes());
    }
}

#[test]
fn ids_out_of_range_are_refused() {
    for text in [
        "[4294967296]",
        "[-1]",
        "[1.0]",
        "[1e3]",
        "[01]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[\"1\"]",
        "[1",
        "1",
    ] {
        assert!(Cursor::new(text).ids().is_err(), "{text}");
    }
    assert_eq!(Cursor::new(" [ ] ").ids(), Ok(Vec::new()));
}

#[test]
fn deep_nesting_is_refused_without_harm() {
    let deep = "[".repeat(100_000);
    let error = skip_all(&deep).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected at most 128 levels of nesting at byte 129"
    );
    let fits = format!("{}{}", "[".repeat(128), "]".repeat(128));
    assert_eq!(skip_all(&fits), Ok(()));
}

#[test]
fn infinite_numbers_are_refused() {
    for text in ["1e999", "NaN", "Infinity", "-Infinity", "null"] {
        assert!(Cursor::new(text).f64().is_err(), "{text}");
    }
}

#[test]
fn of_duplicate_keys_the_last_one_counts_and_all_are_removed() {
    let text = r#"{"stream":false,"a":1,"str\u0065am":true}"#;
    let fields = Fields::read(text).unwrap();
    let stream = fields.get("stream").unwrap();
    assert_eq!(&text[stream.value.clone()], "true");
    assert_eq!(
        fields.rewrite(text, |key| key == "stream", ""),
        r#"{"a":1}"#
    );
}
