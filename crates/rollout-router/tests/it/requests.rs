//! What the router makes of an agent's request, and what it refuses.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::Field,
    span::{Attributes, Id, Record},
};

use crate::support::{Bed, user};

/// The request that an engine got for what an agent sent in a session.
async fn sent(session: Value, request: Value) -> Value {
    let bed = Bed::start().await;
    let id = bed.session(session).await;
    bed.chat(&id, request).await.ok();
    bed.engine_requests(&id).await.remove(0)
}

fn request(extra: Value) -> Value {
    let mut body =
        json!({"model": "default", "messages": [user("hi")], "max_tokens": 4, "ignore_eos": true});
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn what_recording_needs_is_set_for_the_agent() {
    let sent = sent(json!({}), request(json!({}))).await;
    assert_eq!(sent["logprobs"], true);
    assert_eq!(sent["return_prompt_token_ids"], true);
    assert_eq!(sent["return_meta_info"], true);
    assert_eq!(sent["no_stop_trim"], false);
    assert_eq!(sent["stream"], false);
    assert_eq!(sent["rid"].as_str().unwrap().len(), 32);
}

#[tokio::test]
async fn the_agents_own_settings_of_these_keys_do_not_count() {
    let extra = json!({
        "logprobs": false, "return_prompt_token_ids": false, "return_meta_info": false, "no_stop_trim": true,
        "stream": null, "stream_options": null, "rid": "mine", "input_ids": [1, 2], "logprob_start_len": 0,
    });
    let sent = sent(json!({}), request(extra)).await;
    assert_eq!(sent["logprobs"], true);
    assert_ne!(sent["rid"], "mine");
    assert_eq!(sent["no_stop_trim"], false);
    for gone in ["stream_options", "input_ids", "logprob_start_len"] {
        assert!(sent.get(gone).is_none(), "{gone}");
    }
}

/// Counts the warnings that name a key.
struct Warnings {
    key: &'static str,
    count: Arc<AtomicUsize>,
}

impl Subscriber for Warnings {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut names_it = false;
        event.record(&mut |_: &Field, value: &dyn Debug| {
            names_it |= format!("{value:?}").contains(self.key);
        });
        if names_it && *event.metadata().level() == Level::WARN {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_key_that_is_removed_from_every_request_is_told_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let warnings = Warnings {
        key: "logprob_start_len",
        count: Arc::clone(&count),
    };
    // The router's tasks run on this thread.
    let _here = tracing::subscriber::set_default(warnings);
    let bed = Bed::start().await;
    for told in [0, 1, 1] {
        let id = bed.session(json!({})).await;
        let extra = match told {
            0 => json!({}),
            _ => json!({"logprob_start_len": 0}),
        };
        for _ in 0..2 {
            bed.chat(&id, request(extra.clone())).await.ok();
        }
        assert_eq!(count.load(Ordering::Relaxed), told);
    }
}

#[tokio::test]
async fn everything_else_is_forwarded_as_it_was_written() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let body = r#"{"model":"default", "messages" : [ {"role":"user","content":[{"type":"text","text":"hi \u00e9"}],"name":"x"} ],"temperature":1.0,"max_tokens":4,"unknown":{"a":1e2},"top_logprobs":2}"#;
    let path = format!("/sessions/{id}/v1/chat/completions");
    let answer = bed.agent().send("POST", &path, body).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let story = bed.control().get(&format!("/sessions/{id}")).await;
    let text = story.text();
    assert!(text.contains(r#""unknown":{"a":100.0}"#), "{text}");
    let sent = bed.engine_requests(&id).await.remove(0);
    assert_eq!(sent["messages"][0]["content"][0]["text"], "hi é");
    assert_eq!(sent["messages"][0]["name"], "x");
    assert_eq!(sent["top_logprobs"], 2);
}

#[tokio::test]
async fn sampling_defaults_fill_what_is_missing() {
    let session =
        json!({"sampling": {"params": {"temperature": 0.25, "top_p": 0.5, "max_tokens": 3}}});
    let body = json!({"messages": [user("hi")], "temperature": 0.75, "max_completion_tokens": 2});
    let sent = sent(session, body).await;
    assert_eq!(sent["temperature"], 0.75);
    assert_eq!(sent["top_p"], 0.5);
    assert_eq!(sent["max_completion_tokens"], 2);
    assert!(sent.get("max_tokens").is_none());
}

#[tokio::test]
async fn pinned_sampling_wins_over_the_agent() {
    let session =
        json!({"sampling": {"policy": "Pin", "params": {"temperature": 0.25, "max_tokens": 3}}});
    let body = json!({"messages": [user("hi")], "temperature": 0.75, "max_completion_tokens": 200, "top_k": 5});
    let sent = sent(session, body).await;
    assert_eq!(sent["temperature"], 0.25);
    assert_eq!(sent["max_tokens"], 3);
    assert_eq!(sent["top_k"], 5);
    assert!(sent.get("max_completion_tokens").is_none());
}

#[tokio::test]
async fn the_output_is_clamped_to_the_sessions_budget() {
    let bed = Bed::start().await;
    let id = bed.session(json!({"max_seq_len": 60})).await;
    let first = json!({"messages": [user("hi")], "max_tokens": 10, "ignore_eos": true});
    let reply = bed.chat(&id, first).await.ok();
    let used = reply["usage"]["total_tokens"].as_u64().unwrap();
    let messages = json!([user("hi"), reply["choices"][0]["message"], user("more")]);
    let second = json!({"messages": messages, "max_tokens": 1000, "ignore_eos": true});
    let reply = bed.chat(&id, second).await.ok();
    let sent = bed.engine_requests(&id).await;
    assert_eq!(sent[0]["max_tokens"], 10);
    assert_eq!(sent[1]["max_tokens"], 60 - used);
    let messages = json!([
        user("hi"),
        user("x"),
        user("more"),
        reply["choices"][0]["message"],
        user("again")
    ]);
    let third = bed.chat(&id, json!({"messages": messages})).await;
    assert_eq!(third.status, 400);
    assert!(
        third
            .error()
            .contains("maximum context length is 60 tokens"),
        "{}",
        third.error()
    );
    assert_eq!(third.json()["error"]["code"], "context_length_exceeded");
    let collected = bed
        .samples(&id, json!({"max_seq_len": 60, "split": true}))
        .await;
    assert!(
        collected
            .samples
            .iter()
            .all(|sample| sample.tokens.len() <= 60)
    );
}

#[tokio::test]
async fn a_request_without_a_limit_gets_the_budget_as_its_limit() {
    let sent = sent(
        json!({"max_seq_len": 50}),
        json!({"messages": [user("hi")]}),
    )
    .await;
    assert_eq!(sent["max_tokens"], 50);
}

#[tokio::test]
async fn a_shorter_request_is_not_held_to_the_length_of_the_conversation() {
    let bed = Bed::start().await;
    let id = bed.session(json!({"max_seq_len": 60})).await;
    let long = json!({"messages": [user("hi"), user("a b c d"), user("e f")], "max_tokens": 30, "ignore_eos": true});
    bed.chat(&id, long).await.ok();
    bed.chat(
        &id,
        json!({"messages": [user("summary")], "max_tokens": 40, "ignore_eos": true}),
    )
    .await
    .ok();
    let sent = bed.engine_requests(&id).await;
    assert_eq!(sent[1]["max_tokens"], 40);
}

#[tokio::test]
async fn wrong_requests_are_refused_with_the_reason_and_record_nothing() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let path = format!("/sessions/{id}/v1/chat/completions");
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]});
    let cases = [
        ("{\"messages\": [", "invalid JSON body: "),
        ("[]", "invalid JSON body: expected an object"),
        ("{}", "messages is missing"),
        ("", "messages is missing"),
        ("{\"messages\": null}", "messages is missing"),
        ("{\"messages\": \"hi\"}", "messages must be a list"),
        ("{\"messages\": [1]}", "messages[0] must be an object"),
        ("{\"messages\": [], \"n\": 2}", "n must be 1"),
        (&image.to_string(), "content part of type image_url"),
        (
            "{\"messages\": [{\"role\":\"user\",\"content\":[{\"typ\\u0065\":\"input_audio\"}]}]}",
            "content part of type input_audio",
        ),
    ];
    for (body, expected) in cases {
        let answer = bed.agent().send("POST", &path, body.to_owned()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(
            answer.error().contains(expected),
            "{body}: {}",
            answer.error()
        );
    }
    let invalid = bed
        .agent()
        .send("POST", &path, b"{\"messages\": \"\xff\"}".to_vec())
        .await;
    assert_eq!(invalid.status, 400);
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    assert_eq!(view["records"], json!([]));
}

#[tokio::test]
async fn errors_of_the_engine_pass_with_their_status_and_record_nothing() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let empty = bed.chat(&id, json!({"messages": []})).await;
    assert_eq!(empty.status, 400);
    assert_eq!(empty.json()["message"], "Messages cannot be empty.");
    assert_eq!(empty.headers.get_all("server").iter().count(), 0);
    let long: String = "hello world ".repeat(40_000);
    let too_long = bed.chat(&id, json!({"messages": [user(&long)]})).await;
    assert_eq!(too_long.status, 400, "{:?}", too_long.body);
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    assert_eq!(view["records"], json!([]));
    bed.chat(&id, json!({"messages": [user("hi")], "max_tokens": 2}))
        .await
        .ok();
}

#[tokio::test]
async fn sessions_with_wrong_settings_are_refused() {
    let bed = Bed::start().await;
    for (body, expected) in [
        (json!({"assign": true}), "assign needs a job"),
        (json!({"max_seq_len": 0}), "max_seq_len must be at least 1"),
        (json!({"max_seq_len": "x"}), "invalid session"),
        (
            json!({"deadline_seconds": -1}),
            "deadline_seconds must be a positive number",
        ),
        (json!({"metadata": [1]}), "metadata must be an object"),
        (
            json!({"request_kwargs": "x"}),
            "request_kwargs must be an object",
        ),
        (
            json!({"sampling": {"params": {"logprob_start_len": 0}}}),
            "defeats its prefix cache",
        ),
        (
            json!({"sampling": {"params": {"messages": []}}}),
            "is not a sampling parameter",
        ),
        (json!({"sampling": {"policy": "Force"}}), "invalid session"),
    ] {
        let answer = bed.control().post("/sessions", body.clone()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(
            answer.error().contains(expected),
            "{body}: {}",
            answer.error()
        );
    }
    let malformed = bed.control().send("POST", "/sessions", "{").await;
    assert_eq!(malformed.status, 400);
}

#[tokio::test]
async fn a_create_without_a_body_makes_a_bare_session_as_in_miles() {
    let bed = Bed::start().await;
    let created = bed.control().send("POST", "/sessions", "").await.ok();
    assert_eq!(created["session_id"].as_str().unwrap().len(), 32);
    let instance = created["session_server_instance_id"].as_str().unwrap();
    assert_eq!(created["session_id"].as_str().unwrap()[..4], instance[..4]);
}

#[tokio::test]
async fn the_same_idempotency_key_answers_the_same_session() {
    let bed = Bed::start().await;
    let body = json!({"job": "a", "idempotency_key": "k"});
    let first = bed.session(body.clone()).await;
    assert_eq!(bed.session(body.clone()).await, first);
    assert_ne!(
        bed.session(json!({"job": "b", "idempotency_key": "k"}))
            .await,
        first
    );
    bed.control().delete(&format!("/sessions/{first}")).await;
    assert_ne!(bed.session(body).await, first);
}
