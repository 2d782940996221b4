//! Templates that do not end, and numbers that have no end.

use rollout_tokenizer::{ChatTemplate, Json, RenderInput, TokenizerError};

fn rendered(source: &str, messages: &str) -> Result<String, TokenizerError> {
    let messages = Json::parse(messages).unwrap();
    ChatTemplate::new(source)?.render(&RenderInput {
        messages: messages.as_array().unwrap(),
        tools: None,
        add_generation_prompt: false,
        continue_final_message: false,
        kwargs: &[],
    })
}

#[test]
fn a_template_that_does_not_end_is_stopped() {
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = b %}{% endfor %}{% endfor %}";
    let error = rendered(endless, "[]").unwrap_err();
    assert!(matches!(error, TokenizerError::Endless { .. }), "{error}");
    assert!(error.is_callers());
}

#[test]
fn a_template_that_writes_without_end_is_stopped() {
    for endless in [
        "{% for a in range(99999) %}{{ 'x' * 1000000 }}{% endfor %}",
        "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
    ] {
        let error = rendered(endless, "[]").unwrap_err();
        assert!(
            matches!(
                error,
                TokenizerError::Endless { .. } | TokenizerError::Template { .. }
            ),
            "{error}"
        );
    }
}

#[test]
fn a_template_that_calls_itself_is_stopped() {
    let error = rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "[]").unwrap_err();
    assert!(matches!(error, TokenizerError::Template { .. }), "{error}");
}

#[test]
fn numbers_keep_every_digit() {
    let messages = r#"[{"role": "user", "n": [340282366920938463463374607431768211457, 18446744073709551616, 1.0, -0.0, 1e22, 1e-7, 1e999, 100]}]"#;
    assert_eq!(
        rendered(
            "{{ messages[0].n | tojson }}|{{ messages[0].n }}|{{ messages[0].n[4] ~ '' }}",
            messages
        )
        .unwrap(),
        "[340282366920938463463374607431768211457, 18446744073709551616, 1.0, -0.0, 1e+22, 1e-07, Infinity, 100]|\
         [340282366920938463463374607431768211457, 18446744073709551616, 1.0, -0.0, 1e+22, 1e-07, inf, 100]|1e+22"
    );
}

#[test]
fn json_that_is_none_is_refused_with_its_place() {
    for (text, place) in [
        ("{\"a\": 01}", 6),
        ("[1,]", 3),
        ("\"a", 0),
        ("[1] x", 4),
        ("{\"a\" 1}", 5),
        ("1.", 0),
        ("nul", 0),
    ] {
        let error = Json::parse(text).unwrap_err();
        assert_eq!(error.offset, place, "{text}: {error}");
    }
    let deep = "[".repeat(200) + &"]".repeat(200);
    assert!(Json::parse(&deep).unwrap_err().problem.contains("nesting"));
}
