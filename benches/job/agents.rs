//! Launchers and agents of the agentic job, in this process: the launcher's protocol on the wire, agents of three turns.
//!
//! As in a pod, a session costs the router a claim, a long poll for its events, heartbeats, chats and a result.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use rollout_router::Holder;
use serde_json::{Value, json};

use crate::client::Connection;

const TURNS: usize = 3;

/// Agents of one pod.
const PER_POD: u32 = 64;

/// The claim token of the pod that this agent is in.
pub(crate) fn claim_token(secret: &str, agent: u32) -> String {
    let holder = Holder {
        job: "bench".to_owned(),
        slot: (agent / PER_POD).to_string(),
        generation: 1,
    };
    format!("Bearer {}", holder.token(secret))
}

/// Takes sessions one after another until the rollout is closed.
pub(crate) async fn run(url: String, token: String) {
    let mut launcher = Connection::open(&url).await;
    let mut agent = Connection::open(&url).await;
    let headers = [("authorization", token.as_str())];
    for claim in 0_u64.. {
        let body = json!({"claim_id": format!("{:016x}{claim:016x}", rand::random::<u64>()), "wait_seconds": 20});
        let claimed = launcher
            .call(
                "POST",
                "/agent/claim",
                &headers,
                Bytes::from(body.to_string()),
            )
            .await;
        let session: Value = match claimed {
            Ok((StatusCode::OK, body)) => serde_json::from_slice(&body).unwrap(),
            Ok((StatusCode::NO_CONTENT, _)) => continue,
            _ => return,
        };
        let id = session["session_id"].as_str().unwrap().to_owned();
        let metadata = {
            let beat = heartbeat(&url, &headers, &id, &session);
            let events = events(&url, &headers, &id);
            tokio::select! {
                metadata = converse(&mut agent, &id, &session) => metadata,
                () = beat => return,
                () = events => return,
            }
        };
        let result = json!({"outcome": "completed", "exit_code": 0, "signal": null, "metadata": metadata, "error": null,
            "log_tail": null, "agent_seconds": 1.0, "hook": null});
        let path = format!("/agent/sessions/{id}/result");
        let posted = launcher
            .call("POST", &path, &headers, Bytes::from(result.to_string()))
            .await;
        if posted.is_err() {
            return;
        }
    }
}

/// The agent: asks, appends what it was told, asks again.
async fn converse(agent: &mut Connection, id: &str, session: &Value) -> Value {
    let mut messages = session["prompt"].as_array().unwrap().clone();
    let path = format!("/sessions/{id}/v1/chat/completions");
    for turn in 0..TURNS {
        let mut body = session["request_kwargs"].clone();
        body["model"] = json!("default");
        body["messages"] = json!(messages);
        let Ok((status, answer)) = agent
            .call("POST", &path, &[], Bytes::from(body.to_string()))
            .await
        else {
            return json!({"reward": 0});
        };
        if status != StatusCode::OK {
            return json!({"reward": 0});
        }
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        messages.push(answer["choices"][0]["message"].clone());
        messages.push(json!({"role": "user", "content": format!("Step {turn}: check it again.")}));
    }
    json!({"reward": 1})
}

/// Never ends, unless the router is gone.
async fn heartbeat(url: &str, headers: &[(&'static str, &str)], id: &str, session: &Value) {
    let every = Duration::from_secs_f64(session["heartbeat_seconds"].as_f64().unwrap());
    let path = format!("/agent/sessions/{id}/heartbeat");
    let mut connection = None;
    loop {
        tokio::time::sleep(every).await;
        if connection.is_none() {
            connection = Some(Connection::open(url).await);
        }
        let Some(open) = &mut connection else { return };
        if open
            .call("POST", &path, headers, Bytes::from_static(b"{}"))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// The long poll for an abort. Never ends, unless the router is gone.
async fn events(url: &str, headers: &[(&'static str, &str)], id: &str) {
    let mut connection = Connection::open(url).await;
    let path = format!("/agent/sessions/{id}/events?wait_seconds=20");
    while connection
        .call("GET", &path, headers, Bytes::new())
        .await
        .is_ok()
    {}
}
