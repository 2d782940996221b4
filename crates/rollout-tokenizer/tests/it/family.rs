//! Families: prompts that inherit, verification, and the comparison with a fresh render.

use std::sync::Arc;

use rollout_tokenizer::{
    Family, FamilyError, Inheriting, Json, Kwargs, MismatchKind, RenderInput, Tokenizer,
    mismatches, verify,
};

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn messages(text: &str) -> Vec<Json> {
    json(text).as_array().unwrap().to_vec()
}

fn family(family: Family) -> Inheriting {
    let tokenizer = Arc::new(Tokenizer::builtin().unwrap());
    Inheriting::new(tokenizer, family, &Kwargs::new()).unwrap()
}

fn render(inheriting: &Inheriting, messages: &[Json]) -> Vec<u32> {
    let input = RenderInput {
        messages,
        tools: None,
        add_generation_prompt: false,
        continue_final_message: false,
        kwargs: &[],
    };
    let tokenizer = inheriting.tokenizer();
    tokenizer
        .encode(&tokenizer.render(&input).unwrap())
        .unwrap()
}

#[test]
fn a_later_prompt_is_the_earlier_ids_the_line_break_and_what_was_appended() {
    let qwen = family(Family::Qwen3);
    let asked = messages(r#"[{"role": "user", "content": "hi"}]"#);
    let first = qwen.first(&asked, None, &Kwargs::new()).unwrap();
    let end = qwen.tokenizer().token_id("<|im_end|>").unwrap();
    // Ids that no tokenizer would make of this text: they stay.
    let mut turn = first.clone();
    for letter in ["H", "e", "l", "l", "o"] {
        turn.extend(qwen.tokenizer().encode(letter).unwrap());
    }
    turn.push(end);
    let old = messages(
        r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]"#,
    );
    let appended = messages(r#"[{"role": "user", "content": "again"}]"#);
    let ids = qwen
        .merge(&old, &appended, &turn, None, &Kwargs::new())
        .unwrap();
    assert_eq!(ids[..turn.len()], turn);
    let added = qwen.tokenizer().decode(&ids[turn.len()..], false).unwrap();
    assert_eq!(
        added,
        "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    );

    // A turn that was cut by its length has no end token, and gets no line break.
    let cut = &turn[..turn.len() - 1];
    let ids = qwen
        .merge(&old, &appended, cut, None, &Kwargs::new())
        .unwrap();
    let added = qwen.tokenizer().decode(&ids[cut.len()..], false).unwrap();
    assert!(added.starts_with("<|im_start|>user"), "{added:?}");

    // Nothing appended: the opening of the next turn alone.
    let ids = qwen.merge(&old, &[], &turn, None, &Kwargs::new()).unwrap();
    let added = qwen.tokenizer().decode(&ids[turn.len()..], false).unwrap();
    assert_eq!(added, "\n<|im_start|>assistant\n");
}

#[test]
fn what_a_family_fixes_cannot_be_set_to_something_else() {
    let qwen = family(Family::Qwen3);
    let request = Kwargs::from([("enable_thinking".into(), Json::Bool(false))]);
    let all = qwen.kwargs(&request).unwrap();
    assert_eq!(all.get("clear_thinking"), Some(&Json::Bool(false)));
    assert_eq!(all.get("enable_thinking"), Some(&Json::Bool(false)));

    let request = Kwargs::from([("clear_thinking".into(), Json::Bool(true))]);
    let error = qwen.kwargs(&request).unwrap_err();
    assert!(error.is_callers());
    assert_eq!(
        error.to_string(),
        "chat template kwarg clear_thinking=True conflicts with the value registered for qwen3: False"
    );
}

#[test]
fn a_request_that_sets_one_alias_replaces_all() {
    let defaults = Kwargs::from([("thinking".into(), Json::Bool(true))]);
    let tokenizer = Arc::new(Tokenizer::builtin().unwrap());
    let deepseek = Inheriting::new(tokenizer, Family::DeepseekV32, &defaults).unwrap();
    let request = Kwargs::from([("enable_thinking".into(), Json::Bool(false))]);
    let all = deepseek.kwargs(&request).unwrap();
    assert!(!all.contains_key("thinking"));
    assert!(
        deepseek
            .kwargs(&Kwargs::new())
            .unwrap()
            .contains_key("thinking")
    );
}

#[test]
fn a_role_that_may_not_be_appended_is_named_with_its_place() {
    let qwen = family(Family::Qwen35);
    let old =
        messages(r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]"#);
    let appended =
        messages(r#"[{"role": "user", "content": "c"}, {"role": "system", "content": "d"}]"#);
    let error = qwen
        .merge(&old, &appended, &[1], None, &Kwargs::new())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "appended message at index 3 has role='system', allowed=['assistant', 'tool', 'user']; the selected TITO fixed template does not support appending this role"
    );
}

#[test]
fn a_tokenizer_of_another_family_is_refused_with_what_it_lacks() {
    let tokenizer = Arc::new(Tokenizer::builtin().unwrap());
    let error = Inheriting::new(tokenizer, Family::Glm47, &Kwargs::new()).unwrap_err();
    assert!(matches!(error, FamilyError::Foreign { .. }));
    assert_eq!(
        error.to_string(),
        "the tokenizer is none of the family glm47: it has no token \"<|user|>\""
    );
}

#[test]
fn a_template_that_appends_only_is_verified() {
    let verified = verify(&family(Family::Qwen3), 7, 60).unwrap().unwrap();
    assert_eq!(verified.conversations, 60);
    assert!(verified.turns > 60, "{verified:?}");
}

#[test]
fn a_family_that_misses_the_line_break_is_told() {
    let found = verify(&family(Family::Default), 7, 60)
        .unwrap()
        .unwrap_err();
    assert!(
        found.problem.contains("behind the end of a turn"),
        "{}",
        found.problem
    );
    assert!(found.expected.ends_with("<|im_end|>\n"));
    assert!(found.actual.ends_with("<|im_end|>"));
}

#[test]
fn a_template_that_drops_reasoning_is_shown_with_the_smallest_conversation() {
    let tokenizer = Arc::new(Tokenizer::builtin().unwrap());
    let defaults = Kwargs::from([("strip_earlier_reasoning".into(), Json::Bool(true))]);
    let inheriting = Inheriting::new(tokenizer, Family::Qwen3, &defaults).unwrap();
    let found = verify(&inheriting, 7, 60).unwrap().unwrap_err();
    assert!(
        found.problem.contains("changes when messages are appended"),
        "{}",
        found.problem
    );
    assert!(found.messages.len() <= 3, "{:?}", found.messages);
    assert_eq!(found.tools, None);
    assert_ne!(found.expected[found.at..], found.actual[found.at..]);
    assert_eq!(found.expected[..found.at], found.actual[..found.at]);
}

#[test]
fn two_ways_to_tokenize_one_text_are_no_mismatch() {
    let qwen = family(Family::Qwen3);
    let said = messages(
        r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]"#,
    );
    let expected = render(&qwen, &said);
    let text = qwen.tokenizer().decode(&expected, false).unwrap();
    let (before, after) = text.split_once("Hello").unwrap();
    let mut actual = qwen.tokenizer().encode(before).unwrap();
    for letter in ["H", "e", "l", "l", "o"] {
        actual.extend(qwen.tokenizer().encode(letter).unwrap());
    }
    actual.extend(qwen.tokenizer().encode(after.trim_end()).unwrap());
    assert_ne!(expected, actual);
    let found = mismatches(qwen.tokenizer(), qwen.rules(), &expected, &actual).unwrap();
    assert_eq!(found, []);
}

#[test]
fn mismatches_say_where_and_what() {
    let qwen = family(Family::Qwen3);
    let of = |user: &str, assistant: &str| {
        let said = format!(
            r#"[{{"role": "user", "content": "{user}"}}, {{"role": "assistant", "content": "{assistant}"}}]"#
        );
        render(&qwen, &messages(&said))
    };
    let compare = |expected: &[u32], actual: &[u32]| {
        mismatches(qwen.tokenizer(), qwen.rules(), expected, actual).unwrap()
    };
    let expected = of("hi", "Hello");
    let found = compare(&expected, &of("hi", "Bye"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind, MismatchKind::AssistantText);
    assert_eq!(found[0].expected_text, "assistant\nHello");
    assert_eq!(found[0].actual_text, "assistant\nBye");
    assert_eq!(
        compare(&expected, &of("ho", "Hello"))[0].kind,
        MismatchKind::NonAssistantText
    );

    let mut other = expected.clone();
    other[0] = qwen.tokenizer().token_id("<|im_end|>").unwrap();
    assert_eq!(
        compare(&expected, &other)[0].kind,
        MismatchKind::SpecialTokenType
    );
    assert_eq!(compare(&expected, &other)[0].segment_index, 0);

    let found = compare(&expected, &expected[1..]);
    assert_eq!(
        (found[0].kind, found[0].segment_index),
        (MismatchKind::SpecialTokenCount, -1)
    );
}
