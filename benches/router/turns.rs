//! CPU time of a recorded turn: sessions whose conversation grows by 512 tokens a turn.
//!
//! Two shapes. The one of the target has prompts of 11,000 tokens in the mean; the other ends at 11,000, as the published
//! measurements of Python session servers do.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::replies::{self, OUTPUT};
use crate::spread::Spread;
use crate::{start_engine, start_router};

/// Turns of a session.
pub(crate) const TURNS: usize = 20;

/// Tokens that the environment adds between two turns.
const ADDED: usize = 256;

const SESSIONS_AT_ONCE: usize = 16;
const SESSIONS_PER_CLIENT: usize = 8;
const ROUNDS: usize = 7;

/// A growing conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    name: &'static str,
    first_prompt: usize,
}

pub(crate) const SHAPES: [Shape; 2] = [
    Shape {
        name: "prompts of 11,000 tokens in the mean",
        first_prompt: 11_000 - (TURNS - 1) * (OUTPUT + ADDED) / 2,
    },
    Shape {
        name: "prompts that grow to 11,000 tokens",
        first_prompt: 11_000 - (TURNS - 1) * (OUTPUT + ADDED),
    },
];

impl Shape {
    pub(crate) fn prompt_tokens(self, turn: usize) -> usize {
        self.first_prompt + turn * (OUTPUT + ADDED)
    }

    /// The agent's request: the whole conversation as text, four characters to a token.
    fn request(self, turn: usize) -> Bytes {
        let mut messages = vec![
            json!({"role": "system", "content": "You are a coding agent.\n"}),
            json!({"role": "user", "content": "fix ".repeat(self.first_prompt)}),
        ];
        for _ in 0..turn {
            messages.push(json!({"role": "assistant", "content": " tok".repeat(OUTPUT)}));
            messages.push(json!({"role": "user", "content": "ls;\n".repeat(ADDED)}));
        }
        let body =
            json!({"model": "bench", "messages": messages, "temperature": 1.0, "max_tokens": 2048});
        Bytes::from(body.to_string())
    }
}

/// Measures both shapes.
pub(crate) async fn measure() {
    let engine = start_engine();
    for (index, shape) in SHAPES.into_iter().enumerate() {
        let router = start_router(&[engine.url("url")]);
        let url = router.url("control_url");
        let requests: Arc<[Bytes]> = (0..TURNS).map(|turn| shape.request(turn)).collect();
        run(&url, index, &requests, 2).await;
        let [mut user, mut kernel] = [Spread::default(), Spread::default()];
        for _ in 0..ROUNDS {
            let before = router.cpu();
            run(&url, index, &requests, SESSIONS_PER_CLIENT).await;
            let spent = router.cpu() - before;
            let turns =
                f64::from(u32::try_from(SESSIONS_AT_ONCE * SESSIONS_PER_CLIENT * TURNS).unwrap());
            user.add(1e3 * spent.user.as_secs_f64() / turns);
            kernel.add(1e3 * spent.kernel.as_secs_f64() / turns);
        }
        let mean = |sizes: [usize; TURNS]| sizes.iter().sum::<usize>() / TURNS;
        let turns: [usize; TURNS] = std::array::from_fn(|turn| turn);
        println!(
            "recorded turn, {}: user {user:.3} ms, kernel {kernel:.3} ms; per turn {} bytes of request, {} bytes of reply",
            shape.name,
            mean(turns.map(|turn| requests[turn].len())),
            mean(turns.map(|turn| replies::chat(shape.prompt_tokens(turn)).len())),
        );
    }
}

async fn run(url: &str, shape: usize, requests: &Arc<[Bytes]>, sessions: usize) {
    let mut clients = JoinSet::new();
    for _ in 0..SESSIONS_AT_ONCE {
        let (url, requests) = (url.to_owned(), Arc::clone(requests));
        clients.spawn(async move {
            let mut connection = Connection::open(&url).await;
            for _ in 0..sessions {
                let created = connection.json("POST", "/sessions", &Value::Null).await;
                let session = format!("/sessions/{}", created["session_id"].as_str().unwrap());
                let path = format!("{session}/v1/chat/completions");
                for (turn, request) in requests.iter().enumerate() {
                    let id = format!("{shape}-{turn}");
                    let headers = [("x-request-id", id.as_str())];
                    connection
                        .ok("POST", &path, &headers, request.clone())
                        .await;
                }
                connection.json("DELETE", &session, &Value::Null).await;
            }
        });
    }
    clients.join_all().await;
}
