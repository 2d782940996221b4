//! Work without a session.

use serde_json::{Value, json};

use crate::support::{Bed, Recorder, engine_config, user};

#[tokio::test]
async fn a_clients_own_id_is_kept_and_ours_is_added_otherwise() {
    let bed = Bed::start().await;
    let own =
        json!({"input_ids": [5, 6], "rid": "my-rid", "sampling_params": {"max_new_tokens": 2}});
    let reply = bed.control().post("/generate", own).await.ok();
    assert_eq!(reply["meta_info"]["id"], "my-rid");
    let null = json!({"input_ids": [5, 6], "rid": null, "sampling_params": {"max_new_tokens": 2}});
    let reply = bed.control().post("/generate", null).await.ok();
    assert_eq!(reply["meta_info"]["id"].as_str().unwrap().len(), 32);
    let chat = json!({"messages": [user("hi")], "max_tokens": 2});
    let reply = bed.control().post("/v1/chat/completions", chat).await.ok();
    assert_eq!(reply["id"].as_str().unwrap().len(), 32);
    let completion = json!({"prompt": "hi", "max_tokens": 2});
    let reply = bed.control().post("/v1/completions", completion).await.ok();
    assert_eq!(reply["id"].as_str().unwrap().len(), 32);
}

#[tokio::test]
async fn bodies_pass_byte_for_byte_but_for_the_id() {
    const ANSWER: &str = "{ \"text\" : \"\\u00e9 \",\n\"meta_info\":{\"x\":1.0e2} }";
    let engine = Recorder::start(ANSWER).await;
    let bed = Bed::with(Vec::new(), |config| {
        config.engines = vec![engine.url.clone()];
    })
    .await;
    let start = "{ \"text\" : \"\\u00e9\", \"sampling_params\":{\"temperature\":1.0, \"x\":[1,  2e0]},\n\"unknown\":null ";
    let answer = bed
        .control()
        .send("POST", "/generate?a=b", format!("{start}}}"))
        .await;
    assert_eq!(answer.text(), ANSWER);
    let (_, sent) = engine.last();
    let sent = std::str::from_utf8(&sent).unwrap();
    let rest = sent.strip_prefix(start).unwrap();
    assert_eq!(rest.len(), ",\"rid\":\"\"}".len() + 32, "{rest}");
    let own = "{\"rid\" : \"mine\", \"text\":\"a\"}";
    bed.control().send("POST", "/generate", own).await;
    assert_eq!(engine.last().1, own);
    bed.control().send("POST", "/generate", "{}").await;
    assert!(engine.last().1.starts_with(b"{\"rid\":\""));
}

#[tokio::test]
async fn a_batch_gets_an_id_for_each_prompt() {
    let bed = Bed::start().await;
    for body in [
        json!({"input_ids": [[5, 6], [7]], "sampling_params": {"max_new_tokens": 2}}),
        json!({"text": ["a", "b"], "sampling_params": {"max_new_tokens": 2}}),
    ] {
        let reply = bed.control().post("/generate", body).await.ok();
        let ids: Vec<&str> = reply
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["meta_info"]["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), 2);
        assert!(ids.iter().all(|id| id.len() == 32), "{ids:?}");
        assert_ne!(ids[0], ids[1]);
    }
}

#[tokio::test]
async fn several_choices_are_sent_as_single_requests_in_the_engines_order() {
    let bed = Bed::start().await;
    let body = json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2, "n": 3, "temperature": 1.0}});
    let reply = bed.control().post("/generate", body).await.ok();
    let ids: Vec<&Value> = reply
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["meta_info"]["id"])
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| id.as_str().unwrap().len() == 32));
    assert_eq!(
        bed.engines[0].simulator.state().paths["/generate"].requests,
        3
    );
    let batch =
        json!({"input_ids": [[5], [5, 6]], "sampling_params": {"max_new_tokens": 2, "n": 2}});
    let reply = bed.control().post("/generate", batch).await.ok();
    let lengths: Vec<u64> = reply
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["meta_info"]["prompt_tokens"].as_u64().unwrap())
        .collect();
    assert_eq!(lengths, [1, 1, 2, 2]);
    let streamed = json!({"input_ids": [5], "stream": true, "sampling_params": {"n": 2}});
    assert_eq!(bed.control().post("/generate", streamed).await.status, 400);
}

#[tokio::test]
async fn streams_pass_as_they_come() {
    let bed = Bed::start().await;
    let body =
        json!({"messages": [user("hi")], "max_tokens": 5, "stream": true, "ignore_eos": true});
    let answer = bed.control().post("/v1/chat/completions", body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.headers["content-type"],
        "text/event-stream; charset=utf-8"
    );
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn errors_of_the_engine_pass_unchanged() {
    let bed = Bed::start().await;
    let answer = bed.control().post("/generate", json!({})).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].is_string());
    let malformed = bed.control().send("POST", "/generate", "{").await;
    assert_eq!(malformed.status, 400);
    assert!(malformed.error().starts_with("invalid JSON body"));
    let wrong_rid = bed
        .control()
        .post("/generate", json!({"rid": 7, "text": "a"}))
        .await;
    assert_eq!(wrong_rid.status, 400);
}

#[tokio::test]
async fn models_are_those_of_an_engine() {
    let bed = Bed::start().await;
    let models = bed.control().get("/v1/models").await.ok();
    assert_eq!(models["data"][0]["id"], "simulated");
    let id = bed.session(json!({})).await;
    let models = bed
        .agent()
        .get(&format!("/sessions/{id}/v1/models"))
        .await
        .ok();
    assert_eq!(models["data"][0]["id"], "simulated");
}

#[tokio::test]
async fn work_goes_to_the_engine_that_has_least_of_it() {
    let bed = Bed::with(
        vec![engine_config(), engine_config(), engine_config()],
        |_| {},
    )
    .await;
    let control = bed.control();
    let body =
        json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 50, "ignore_eos": true}});
    let calls: Vec<_> = (0..30)
        .map(|_| control.post("/generate", body.clone()))
        .collect();
    for answer in futures_util::future::join_all(calls).await {
        answer.ok();
    }
    for engine in &bed.engines {
        assert_eq!(engine.simulator.state().paths["/generate"].requests, 10);
    }
}

#[tokio::test]
async fn a_session_stays_with_its_engine() {
    let bed = Bed::with(vec![engine_config(), engine_config()], |_| {}).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(bed.session(json!({})).await);
    }
    for _ in 0..3 {
        for id in &sessions {
            bed.chat(id, json!({"messages": [user("hi")], "max_tokens": 2}))
                .await
                .ok();
        }
    }
    for engine in &bed.engines {
        assert_eq!(
            engine.simulator.state().paths["/v1/chat/completions"].requests,
            6
        );
    }
}
