//! Where requests go on, by their messages.

use rollout_session::forest::Rules;
use rollout_session::{CommitError, FinishReason, PrepareError, Shape, TurnId, message_spans};
use serde_json::{Value, json};

use crate::agent::{Answer, Asked, answer, ask, assistant, rules, say, session, user};

fn indices(path: &[TurnId]) -> Vec<usize> {
    path.iter().map(|id| id.index()).collect()
}

fn view(forest: &rollout_session::Forest) -> Vec<usize> {
    indices(&forest.path(forest.head()))
}

/// `u1 a1 u2 a2 ...`, without the last answer.
fn history(turns: usize) -> Vec<Value> {
    let mut messages = Vec::new();
    for turn in 1..=turns {
        messages.push(user(&format!("u{turn}")));
        if turn < turns {
            messages.push(assistant(&format!("a{turn}")));
        }
    }
    messages
}

#[test]
fn a_conversation_inherits_every_token() {
    for shape in [Shape::Line, Shape::Tree] {
        let mut forest = session(shape);
        for turn in 1..=4 {
            let asked = ask(&mut forest, &history(turn), rules()).unwrap();
            let before = forest.head().map_or_else(Vec::new, |head| forest.ids(head));
            assert!(asked.prompt.starts_with(&before));
            assert_eq!(asked.position.known, (turn - 1) * 2);
            let text = format!("a{turn}");
            answer(&mut forest, &asked, &Answer::of(&text, 1)).unwrap();
        }
        assert_eq!(view(&forest), [0, 1, 2, 3]);
        assert_eq!(forest.conversation(forest.head()).len(), 8);
    }
}

#[test]
fn the_same_history_again_is_a_second_answer_to_it() {
    let mut forest = session(Shape::Line);
    say(&mut forest, &history(1), "a1", 1);
    say(&mut forest, &[user("u1"), assistant("a1")], "a1b", 2);
    assert_eq!(view(&forest), [0, 1]);
}

#[test]
fn a_line_goes_one_answer_back() {
    let mut forest = session(Shape::Line);
    say(&mut forest, &history(1), "a1", 1);
    say(&mut forest, &history(2), "a2", 2);
    // The last answer again, and with another tool result.
    say(&mut forest, &history(2), "a2b", 3);
    assert_eq!(view(&forest), [0, 2]);
    let changed = [
        user("u1"),
        assistant("a1"),
        json!({"role": "tool", "content": "x"}),
    ];
    say(&mut forest, &changed, "a2c", 4);
    assert_eq!(view(&forest), [0, 3]);
    assert_eq!(forest.len(), 4);
}

#[test]
fn a_retry_of_the_first_turn_begins_anew() {
    let mut forest = session(Shape::Line);
    say(&mut forest, &history(1), "a1", 1);
    let asked = ask(&mut forest, &history(1), rules()).unwrap();
    assert_eq!((asked.position.base, asked.position.known), (None, 0));
    answer(&mut forest, &asked, &Answer::of("a1b", 2)).unwrap();
    assert_eq!(view(&forest), [1]);
    // Without any answer, any first request will do.
    let mut forest = session(Shape::Line);
    ask(&mut forest, &history(1), rules()).unwrap();
    say(&mut forest, &[user("other")], "a", 1);
    assert_eq!(view(&forest), [0]);
}

#[test]
fn a_line_that_would_lose_two_answers_refuses() {
    let mut forest = session(Shape::Line);
    for turn in 1..=3 {
        say(&mut forest, &history(turn), &format!("a{turn}"), 1);
    }
    let deep = [user("u1"), assistant("a1"), user("other")];
    let error = ask(&mut forest, &deep, rules()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "rollback failed: discard_count=2 exceeds max_assistant_rollback_steps=1 (stored has 6 messages, request has 3 messages)"
    );
    assert_eq!(view(&forest), [0, 1, 2]);
    say(&mut forest, &history(4), "a4", 1);
    assert_eq!(view(&forest), [0, 1, 2, 3]);
}

#[test]
fn a_retry_that_fails_loses_nothing() {
    let mut forest = session(Shape::Line);
    say(&mut forest, &history(1), "a1", 1);
    say(&mut forest, &history(2), "a2", 2);
    // The engine never answers this one.
    let asked = ask(&mut forest, &history(2), rules()).unwrap();
    assert_eq!(asked.position.base.map(TurnId::index), Some(0));
    assert_eq!(view(&forest), [0, 1]);
    say(&mut forest, &history(3), "a3", 3);
    assert_eq!(view(&forest), [0, 1, 2]);
}

#[test]
fn a_role_that_no_template_appends_is_refused_and_a_line_stays_rolled_back() {
    let mut forest = session(Shape::Line);
    say(&mut forest, &history(1), "a1", 1);
    say(&mut forest, &history(2), "a2", 2);
    let system = json!({"role": "system", "content": "s"});
    let request = [user("u1"), assistant("a1"), user("other"), system.clone()];
    let error = ask(&mut forest, &request, rules()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "appended message at index 3 has role='system', allowed=['tool', 'user', 'assistant']; the selected TITO fixed template does not support appending this role"
    );
    assert_eq!(view(&forest), [0]);
    assert_eq!(forest.len(), 2);
    // The first request may have it, and a message without a role is refused by its name in Python.
    let mut forest = session(Shape::Tree);
    say(&mut forest, &[system.clone(), user("u1")], "a1", 1);
    let request = [system, user("u1"), assistant("a1"), json!({"content": "x"})];
    let error = ask(&mut forest, &request, rules()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "appended message role=None not allowed (allowed=['tool', 'user', 'assistant']); the selected TITO fixed template does not support appending this role"
    );
}

#[test]
fn answers_at_the_same_time_are_siblings_and_the_first_is_the_conversation() {
    let mut forest = session(Shape::Line);
    say(&mut forest, &history(1), "a1", 1);
    let asked: Vec<_> = (0..3)
        .map(|_| ask(&mut forest, &history(2), rules()).unwrap())
        .collect();
    for (number, asked) in (2..).zip(&asked) {
        answer(
            &mut forest,
            asked,
            &Answer::of(&format!("a{number}"), number),
        )
        .unwrap();
    }
    assert_eq!(view(&forest), [0, 1]);
    assert_eq!(forest.len(), 4);
    // The agent likes the last one best: its own tokens are inherited.
    let chosen = [
        user("u1"),
        assistant("a1"),
        user("u2"),
        assistant("a4"),
        user("u3"),
    ];
    say(&mut forest, &chosen, "a5", 9);
    assert_eq!(view(&forest), [0, 3, 4]);
}

#[test]
fn a_tree_continues_the_deepest_match_and_of_equals_the_latest() {
    let mut forest = session(Shape::Tree);
    say(&mut forest, &history(1), "a1", 1);
    say(&mut forest, &history(1), "a1", 2);
    let asked = ask(&mut forest, &history(2), rules()).unwrap();
    assert_eq!(asked.position.base.map(TurnId::index), Some(1));
    say(&mut forest, &history(2), "a2", 3);
    say(&mut forest, &history(3), "a3", 4);
    // Back to the middle, and from there on elsewhere.
    let other = [
        user("u1"),
        assistant("a1"),
        user("u2"),
        assistant("a2"),
        user("x"),
    ];
    say(&mut forest, &other, "b", 5);
    assert_eq!(view(&forest), [1, 2, 4]);
    // A sub-agent and a compaction begin something new.
    say(&mut forest, &[user("sub")], "s", 6);
    say(
        &mut forest,
        &[user("summary"), assistant("by the client"), user("go")],
        "c",
        7,
    );
    let leaves = forest.leaves();
    let paths: Vec<Vec<usize>> = leaves.iter().map(|leaf| indices(&leaf.path)).collect();
    assert_eq!(
        paths,
        [vec![0], vec![1, 2, 3], vec![1, 2, 4], vec![5], vec![6]]
    );
}

#[test]
fn a_cut_answer_ends_its_branch() {
    let mut forest = session(Shape::Tree);
    let asked = ask(&mut forest, &history(1), rules()).unwrap();
    let cut = Answer {
        finish: FinishReason::Length,
        ..Answer::of("a1", 1)
    };
    answer(&mut forest, &asked, &cut).unwrap();
    let before = forest.head();
    let error = ask(&mut forest, &history(2), rules()).err().unwrap();
    assert!(
        error
            .to_string()
            .starts_with("truncated generation cannot be extended: "),
        "{error}"
    );
    assert_eq!(forest.head(), before);
    // A line goes on.
    let mut forest = session(Shape::Line);
    let asked = ask(&mut forest, &history(1), rules()).unwrap();
    answer(&mut forest, &asked, &cut).unwrap();
    say(&mut forest, &history(2), "a2", 1);
    assert_eq!(view(&forest), [0, 1]);
}

#[test]
fn a_full_session_refuses_before_a_generation_is_paid_for() {
    for shape in [Shape::Line, Shape::Tree] {
        let mut forest = session(shape);
        say(&mut forest, &history(1), "a1", 1);
        let limit = |in_flight| Rules {
            max_turns: 3,
            in_flight,
            ..rules()
        };
        assert!(ask(&mut forest, &history(2), limit(1)).is_ok());
        let error = ask(&mut forest, &history(2), limit(2)).err().unwrap();
        assert_eq!(error, PrepareError::Full { turns: 3 });
    }
}

#[test]
fn a_prompt_that_does_not_begin_with_its_base_is_refused() {
    let mut forest = session(Shape::Tree);
    say(&mut forest, &history(1), "a1", 1);
    let mut asked = ask(&mut forest, &history(2), rules()).unwrap();
    asked.prompt[1] += 1;
    let error = answer(&mut forest, &asked, &Answer::of("a2", 1)).unwrap_err();
    assert!(
        matches!(
            error,
            CommitError::PrefixMismatch {
                turn: 0,
                shared: 1,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("pretokenized prefix mismatch")
    );
    assert_eq!(forest.len(), 1);
}

#[test]
fn a_session_that_was_closed_takes_no_answer() {
    let mut forest = session(Shape::Line);
    let asked = ask(&mut forest, &history(1), rules()).unwrap();
    forest.close();
    assert!(answer(&mut forest, &asked, &Answer::of("a1", 1)).is_err());
    assert!(forest.is_empty());
}

#[test]
fn clients_that_write_messages_anew_still_continue() {
    let mut forest = session(Shape::Tree);
    let asked = ask(&mut forest, &[user("hi")], rules()).unwrap();
    let mut said = Answer::of("", 1);
    said.message = json!({"role": "assistant", "content": null, "reasoning_content": "why",
        "tool_calls": [{"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]});
    answer(&mut forest, &asked, &said).unwrap();
    let replayed = json!({"tool_calls": [{"function": {"arguments": "{\"a\": 1}", "name": "f"}, "type": "function", "id": "c"}],
        "reasoning_content": "why", "content": "", "role": "assistant", "provider": {"x": 1}});
    let parts = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
    let tool = json!({"role": "tool", "content": "1", "tool_call_id": "c"});
    let asked = ask(&mut forest, &[parts, replayed, tool], rules()).unwrap();
    assert_eq!(asked.position.known, 2);
}

#[test]
fn bytes_that_two_requests_share_prove_nothing_where_the_messages_are_elsewhere() {
    let mut forest = session(Shape::Tree);
    // Of two lists the last one counts: this conversation is `x`, and begins like one of `u1`.
    let twice = r#"{"messages":[{"role":"user","content":"u1"}],"messages":[{"role":"user","content":"x"}]}"#;
    let once =
        r#"{"messages":[{"role":"user","content":"u1"},{"role":"assistant","content":"a"}]}"#;
    let spans = message_spans(twice).unwrap();
    let position = forest.prepare(twice, &spans, rules()).unwrap();
    let asked = Asked {
        body: twice.to_owned(),
        spans,
        position,
        prompt: vec![1],
    };
    answer(&mut forest, &asked, &Answer::of("a", 1)).unwrap();
    let spans = message_spans(once).unwrap();
    let position = forest.prepare(once, &spans, rules()).unwrap();
    assert_eq!(position.base, None);
}

#[test]
fn a_deep_tree_is_walked_without_recursion() {
    let mut forest = session(Shape::Tree);
    let deep = 500;
    let mut messages = vec![user("u")];
    for _ in 0..deep {
        let limits = Rules {
            max_turns: deep,
            ..rules()
        };
        let asked = ask(&mut forest, &messages, limits).unwrap();
        answer(&mut forest, &asked, &Answer::of("a", 1)).unwrap();
        messages.extend([assistant("a"), user("u")]);
    }
    assert_eq!(view(&forest).len(), deep);
    assert_eq!(forest.leaves().len(), 1);
}

#[test]
fn records_and_metadata_show_the_conversation_as_it_is() {
    let mut forest = session(Shape::Tree);
    say(&mut forest, &history(1), "a1", 11);
    say(&mut forest, &history(2), "a2", 12);
    say(&mut forest, &history(2), "a2b", 13);
    let path = forest.path(forest.head());
    let records: Vec<Value> = path.iter().map(|id| forest.record_view(*id)).collect();
    assert_eq!(records.len(), 2);
    let last = &records[1];
    assert_eq!(last["path"], "/v1/chat/completions");
    assert_eq!(last["request"]["messages"], json!(history(2)));
    assert_eq!(
        last["request"]["input_ids"],
        json!(forest.prompt_ids(path[1]))
    );
    assert_eq!(last["response"]["choices"][0]["message"], assistant("a2b"));
    let rows = &last["response"]["choices"][0]["meta_info"]["output_token_logprobs"];
    assert_eq!(*rows, json!([[-0.5, 13, null]]));
    let tree = forest.tree_metadata();
    assert_eq!(
        tree["nodes"][2],
        json!({"id": 2, "parent": 0, "seq": 2, "truncated": false, "committed_at": 2.0,
            "completion_span": [5, 6], "num_tokens": 6, "response_id": "r2"})
    );
    assert_eq!(tree["nodes"][0]["parent"], Value::Null);
    assert_eq!(
        tree["leaves"],
        json!([{"node_id": 1, "path_node_ids": [0, 1]}, {"node_id": 2, "path_node_ids": [0, 2]}])
    );
}

#[test]
fn what_turns_repeat_of_requests_is_held_once() {
    let mut forest = session(Shape::Line);
    let filler = "x".repeat(10_000);
    let mut messages = vec![user(&filler)];
    say(&mut forest, &messages, "a", 1);
    let first = forest.heap_bytes();
    for _ in 0..20 {
        messages.extend([assistant("a"), user("next")]);
        say(&mut forest, &messages, "a", 1);
    }
    let per_turn = (forest.heap_bytes() - first) / 20;
    assert!(per_turn < 400, "{per_turn} bytes");
    let head = forest.head().unwrap();
    let request: Value = serde_json::from_slice(&forest.request(head)).unwrap();
    assert_eq!(request["messages"], json!(messages));
    assert_eq!(request["tools"][0]["type"], "function");
}
