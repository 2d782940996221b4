//! CPU time of the router per request, user and kernel apart.
//!
//! Three processes on loopback: an engine that sends prepared bytes, the router, and the load. The CPU time of the router's process
//! is read from `/proc` before and after. Run: `cargo bench -p rollout-router --bench overhead [-- turns|small|large|URL]`; with a URL the
//! pass-through load goes to a router that runs already, and `PID` in the environment names its process.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on stops"
)]

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rollout_router::{Config, Listeners, Router};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const TURNS: usize = 20;
const FIRST_PROMPT: usize = 6_000;
const OUTPUT: usize = 256;
const ADDED: usize = 256;
const CLIENTS: usize = 16;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .collect();
    let threads = if arguments.first().is_some_and(|it| it == "router") {
        1
    } else {
        2
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap();
    match arguments.first().map(String::as_str) {
        Some("engine") => runtime.block_on(engine()),
        Some("router") => runtime.block_on(router(&arguments[1])),
        Some(url) if url.starts_with("http://") => runtime.block_on(other(url)),
        only => runtime.block_on(measure(only)),
    }
}

/// Answers with prepared bytes; the header `x-request-id` says which.
async fn engine() {
    let replies: Arc<Vec<Bytes>> = Arc::new((0..TURNS).map(chat_reply).collect());
    let small = Bytes::from(generate_reply());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http://{}", listener.local_addr().unwrap());
    let tasks = TaskTracker::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (replies, small) = (Arc::clone(&replies), small.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let turn = request
                .headers()
                .get("x-request-id")
                .and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
            let body = match request.uri().path() {
                "/v1/chat/completions" => replies[turn.unwrap_or(0)].clone(),
                _ => small.clone(),
            };
            async move {
                request.into_body().collect().await.unwrap();
                let response = Response::builder().header("content-type", "application/json");
                Ok::<_, hyper::Error>(response.body(Full::new(body)).unwrap())
            }
        });
        tasks.spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn router(engine: &str) {
    let router = Router::new(Config::new([engine])).unwrap();
    let listeners = Listeners {
        agents: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        control: TcpListener::bind("127.0.0.1:0").await.unwrap(),
    };
    println!("http://{}", listeners.control.local_addr().unwrap());
    router
        .serve(listeners, CancellationToken::new())
        .await
        .unwrap();
}

fn prompt_len(turn: usize) -> usize {
    FIRST_PROMPT + turn * (OUTPUT + ADDED)
}

fn token(position: usize) -> usize {
    1_000 + position * 7_919 % 150_000
}

/// A chat reply as SGLang 0.5.23 sends it: prompt ids, log-probabilities in both places.
fn chat_reply(turn: usize) -> Bytes {
    let prompt: Vec<usize> = (0..prompt_len(turn)).map(token).collect();
    let positions = prompt.len()..prompt.len() + OUTPUT;
    let content: Vec<Value> = positions
        .clone()
        .map(|at| json!({"token": " tok", "bytes": [32, 116, 111, 107], "logprob": log_prob(at), "top_logprobs": []}))
        .collect();
    let rows: Vec<Value> = positions
        .map(|at| json!([log_prob(at), token(at), " tok"]))
        .collect();
    let reply = json!({
        "id": "0123456789abcdef0123456789abcdef", "object": "chat.completion", "created": 1_796_018_992, "model": "default",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": " tok".repeat(OUTPUT), "reasoning_content": null},
            "logprobs": {"content": content}, "finish_reason": "stop", "matched_stop": 2, "prompt_token_ids": prompt,
            "meta_info": {
                "id": "0123456789abcdef0123456789abcdef", "finish_reason": {"type": "stop", "matched": 2}, "prompt_tokens": prompt.len(),
                "weight_version": "default", "input_token_logprobs": [], "output_token_logprobs": rows, "output_token_logprobs_length": OUTPUT,
                "completion_tokens": OUTPUT, "cached_tokens": 12, "e2e_latency": 0.034_849_121_999_968_7,
            },
        }],
        "usage": {"prompt_tokens": prompt.len(), "total_tokens": prompt.len() + OUTPUT, "completion_tokens": OUTPUT},
        "metadata": {"weight_version": "default"},
    });
    Bytes::from(reply.to_string())
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn log_prob(at: usize) -> f64 {
    -((at * 31 % 997) as f64) / 311.0
}

fn generate_reply() -> String {
    let rows: Vec<Value> = (0..16)
        .map(|at| json!([log_prob(at), token(at), null]))
        .collect();
    json!({"text": "x".repeat(64), "output_ids": (0..16).map(token).collect::<Vec<_>>(), "meta_info": {"id": "r", "output_token_logprobs": rows}}).to_string()
}

struct Part {
    child: Child,
    url: String,
}

impl Part {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        Self {
            child,
            url: url.trim().to_owned(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and kernel time of a process so far.
fn cpu(pid: u32) -> (Duration, Duration) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks = |index: usize| Duration::from_millis(10 * fields[index].parse::<u64>().unwrap());
    (ticks(11), ticks(12))
}

async fn measure(only: Option<&str>) {
    let engine = Part::start(&["engine"]);
    let router = Part::start(&["router", &engine.url]);
    let pid = router.child.id();
    if only.is_none_or(|it| it == "turns") {
        turns(&router.url, pid).await;
    }
    for (name, size) in [("small", 0), ("large", 48_000)] {
        if only.is_none_or(|it| it == name) {
            pass_through(&router.url, pid, name, size).await;
        }
    }
}

async fn other(url: &str) {
    let pid = std::env::var("PID").unwrap().parse().unwrap();
    for (name, size) in [("small", 0), ("large", 48_000)] {
        pass_through(url, pid, name, size).await;
    }
}

async fn connect(url: &str) -> SendRequest<Full<Bytes>> {
    let address: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    TaskTracker::new().spawn(connection);
    sender
}

async fn call(
    sender: &mut SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    turn: usize,
    body: Bytes,
) -> Bytes {
    sender.ready().await.unwrap();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "router")
        .header("content-type", "application/json")
        .header("x-request-id", turn.to_string())
        .body(Full::new(body))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Conversations of 20 turns, prompts of 6,000 to 15,728 tokens.
async fn turns(url: &str, pid: u32) {
    let bodies: Arc<Vec<Bytes>> = Arc::new((0..TURNS).map(chat_request).collect());
    let conversations = 24;
    let run = async |conversations: usize| {
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (url, bodies) = (url.to_owned(), Arc::clone(&bodies));
                TaskTracker::new().spawn(async move {
                    let mut sender = connect(&url).await;
                    for _ in 0..conversations {
                        let created = call(&mut sender, "POST", "/sessions", 0, Bytes::new()).await;
                        let created: Value = serde_json::from_slice(&created).unwrap();
                        let id = created["session_id"].as_str().unwrap().to_owned();
                        let path = format!("/sessions/{id}/v1/chat/completions");
                        for (turn, body) in bodies.iter().enumerate() {
                            call(&mut sender, "POST", &path, turn, body.clone()).await;
                        }
                        call(
                            &mut sender,
                            "DELETE",
                            &format!("/sessions/{id}"),
                            0,
                            Bytes::new(),
                        )
                        .await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    };
    run(2).await;
    let (before, started) = (cpu(pid), Instant::now());
    run(conversations).await;
    let mean = prompt_len(TURNS / 2);
    let request: usize = bodies.iter().map(Bytes::len).sum::<usize>() / TURNS;
    let reply: usize = (0..TURNS).map(|turn| chat_reply(turn).len()).sum::<usize>() / TURNS;
    let what = format!("turns (prompt {mean} tokens, request {request} B, reply {reply} B)");
    report(&what, CLIENTS * conversations * TURNS, pid, before, started);
}

fn chat_request(turn: usize) -> Bytes {
    let mut messages = vec![json!({"role": "user", "content": "word ".repeat(FIRST_PROMPT)})];
    for _ in 0..turn {
        messages.push(json!({"role": "assistant", "content": " tok".repeat(OUTPUT)}));
        messages.push(json!({"role": "user", "content": "line of text\n".repeat(ADDED / 4)}));
    }
    Bytes::from(
        json!({"model": "default", "messages": messages, "temperature": 1.0, "max_tokens": 2048})
            .to_string(),
    )
}

async fn pass_through(url: &str, pid: u32, name: &str, size: usize) {
    let requests = 4_000;
    let mut ids = String::from("1");
    while ids.len() < size {
        write!(ids, ",{}", token(ids.len())).unwrap();
    }
    let body = Bytes::from(format!(
        r#"{{"input_ids":[{ids}],"sampling_params":{{"max_new_tokens":16,"temperature":1.0}},"return_logprob":true}}"#
    ));
    let run = async |requests: usize| {
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (url, body) = (url.to_owned(), body.clone());
                TaskTracker::new().spawn(async move {
                    let mut sender = connect(&url).await;
                    for _ in 0..requests {
                        call(&mut sender, "POST", "/generate", 0, body.clone()).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    };
    run(200).await;
    let (before, started) = (cpu(pid), Instant::now());
    run(requests).await;
    let what = format!("pass-through {name} (request {} B)", body.len());
    report(&what, CLIENTS * requests, pid, before, started);
}

fn report(what: &str, requests: usize, pid: u32, before: (Duration, Duration), started: Instant) {
    let took = started.elapsed();
    let after = cpu(pid);
    let count = u32::try_from(requests).unwrap();
    let user = after.0.saturating_sub(before.0).as_secs_f64();
    let kernel = after.1.saturating_sub(before.1).as_secs_f64();
    println!(
        "{what}: {requests} requests in {:.1} s; user {:.1} us, kernel {:.1} us per request; {:.0} requests per CPU second",
        took.as_secs_f64(),
        1e6 * user / f64::from(count),
        1e6 * kernel / f64::from(count),
        f64::from(count) / (user + kernel),
    );
}
