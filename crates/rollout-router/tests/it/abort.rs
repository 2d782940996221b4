//! Aborts that an engine does not act on hold up nobody.

use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Bed, JOB, Served, eventually, in_time, raw_post, slow_engine_config, user};

const CHAT: &str = "/v1/chat/completions";

fn endless() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 20_000, "ignore_eos": true})
}

async fn until_idle(bed: &Bed) {
    in_time(async {
        while bed.control().get("/status").await.json()["requests_in_flight"] != 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_session_answers_its_turn_at_once() {
    for deleted in [true, false] {
        let bed = Bed::with(vec![slow_engine_config()], |config| {
            config.times.orphan = Duration::from_hours(1);
        })
        .await;
        let simulator = &bed.engines[0].simulator;
        // The engine has the request, and neither works on it nor ends it.
        simulator.add_fault(Fault::new(CHAT, FaultKind::Stall));
        let id = bed.session(json!({"job": JOB})).await;
        let end = async {
            eventually("the request arrives", || {
                simulator.state().paths.contains_key(CHAT)
            })
            .await;
            if deleted {
                let path = format!("/sessions/{id}");
                assert_eq!(bed.control().delete(&path).await.status, 204);
            } else {
                let path = format!("/sessions/{id}/outcome");
                let body = json!({"outcome": "deadline"});
                bed.control().post(&path, body).await.ok();
            }
        };
        let (turn, ()) = in_time(Box::pin(async {
            tokio::join!(bed.chat(&id, endless()), end)
        }))
        .await;
        assert_eq!(turn.status, 410, "{:?}", turn.body);
        assert_eq!(turn.headers["x-should-retry"], "false");
        eventually("the engine is told", || {
            simulator.state().paths.contains_key("/abort_request")
        })
        .await;
    }
}

#[tokio::test]
async fn a_request_of_an_engine_that_does_not_listen_is_forgotten_after_a_while() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.orphan = Duration::from_millis(100);
        config.times.control_call = Duration::from_hours(1);
    })
    .await;
    let served = Served::start(&bed.router).await;
    let simulator = &bed.engines[0].simulator;
    simulator.add_fault(Fault::new("/abort_request", FaultKind::Stall));
    let id = bed.session(json!({"job": JOB})).await;
    let chat = format!("/sessions/{id}{CHAT}");
    let generate = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}});
    let mut streams = Vec::new();
    // More than one engine is told of at the same time.
    for (address, path, body) in std::iter::repeat_n(
        [
            (served.agents, chat.as_str(), endless()),
            (served.control, "/generate", generate),
        ],
        20,
    )
    .flatten()
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = raw_post(path, &body);
        stream.write_all(request.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    eventually("all run", || simulator.state().running == 40).await;
    drop(streams);
    until_idle(&bed).await;
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["engines"][0]["in_flight"], 0);
    served.cancel.cancel();
}

#[tokio::test]
async fn an_abort_that_overtakes_its_request_is_repeated() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.abort_repeat = Duration::from_millis(20);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    // The request stands before the scheduler: an abort finds nothing.
    simulator.add_fault(Fault::new("/generate", FaultKind::Stall).seconds(0.3));
    let body = json!({"input_ids": [[5], [6]], "rid": ["one", "other"], "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}});
    let control = bed.control();
    let abort = async {
        eventually("the request arrives", || {
            simulator.state().paths.contains_key("/generate")
        })
        .await;
        for rid in ["one", "other"] {
            let told = json!({"rid": rid});
            let told = bed.control().post("/abort_request", told).await.ok();
            assert_eq!(told["engines"][0]["found"], true);
            // Only the one that was named.
            if rid == "one" {
                eventually("the other one runs alone", || {
                    simulator.state().aborted_rids.contains(&"one".to_owned())
                })
                .await;
                assert_eq!(simulator.state().in_flight, ["other"]);
            }
        }
    };
    let (answer, ()) = in_time(Box::pin(async {
        tokio::join!(control.post("/generate", body), abort)
    }))
    .await;
    for part in answer.ok().as_array().unwrap() {
        assert_eq!(part["meta_info"]["finish_reason"]["type"], "abort");
    }
    until_idle(&bed).await;
}
