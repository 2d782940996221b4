//! Memory of a simulated engine with many requests in flight.
//!
//! Usage: `in_flight [REQUESTS [PROMPT_TOKENS]]`. Starts itself a second time as the server, sends the requests over as many connections,
//! waits until all are in flight, prints the server's peak memory, aborts them, and checks that every one was answered.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::process::Stdio;
use std::time::Duration;

use sglang_simulator::{Config, Simulator};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some("--serve") {
        return serve().await;
    }
    let requests = first.map_or(Ok(10_000), |text| text.parse())?;
    let prompt_tokens = args.next().map_or(Ok(1000), |text| text.parse())?;
    measure(requests, prompt_tokens).await
}

async fn serve() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Simulator::new(Config::default())?
        .serve(listener, CancellationToken::new())
        .await?;
    Ok(())
}

async fn measure(requests: usize, prompt_tokens: usize) -> Result<(), Failure> {
    let mut server = Command::new(std::env::current_exe()?)
        .arg("--serve")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = server.stdout.take().ok_or("no output")?;
    let address = BufReader::new(stdout)
        .lines()
        .next_line()
        .await?
        .ok_or("no address")?;
    let pid = server.id().ok_or("no process")?;
    println!("idle: {}", memory(pid)?);
    let mut tasks = JoinSet::new();
    for index in 0..requests {
        let ids: Vec<String> = (0..prompt_tokens)
            .map(|i| ((index * 7 + i * 13) % 1000).to_string())
            .collect();
        let body = format!(
            "{{\"rid\": \"r{index}\", \"input_ids\": [{}], \"return_logprob\": true, \"sampling_params\": {{\"max_new_tokens\": 2000}}}}",
            ids.join(",")
        );
        let mut stream = send(&address, "/generate", &body).await?;
        tasks.spawn(async move {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.1 200"))
        });
    }
    let in_flight = loop {
        let (in_flight, ended) = arrived(&address).await?;
        if in_flight + ended == requests {
            break in_flight;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    println!(
        "{in_flight} of {requests} requests of {prompt_tokens} prompt tokens in flight: {}",
        memory(pid)?
    );
    ask(&address, "/pause_generation", "{\"mode\": \"abort\"}").await?;
    let mut answered = 0;
    while let Some(ended) = tasks.join_next().await {
        answered += usize::from(ended??);
    }
    println!(
        "{answered} answered after an abort of all: {}",
        memory(pid)?
    );
    server.kill().await?;
    Ok(())
}

async fn send(address: &str, path: &str, body: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: engine\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(stream)
}

async fn ask(address: &str, path: &str, body: &str) -> std::io::Result<String> {
    let mut answer = String::new();
    send(address, path, body)
        .await?
        .read_to_string(&mut answer)
        .await?;
    Ok(answer)
}

/// Requests in flight, and those that have ended.
async fn arrived(address: &str) -> Result<(usize, usize), Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /simulator/state HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split("\r\n\r\n").nth(1).ok_or("no body")?;
    let state: serde_json::Value = serde_json::from_str(body)?;
    let in_flight = state["in_flight"].as_array().map_or(0, Vec::len);
    let ended = usize::try_from(state["finished"].as_u64().unwrap_or(0))?;
    Ok((in_flight, ended))
}

/// Peak and present memory of a process.
fn memory(pid: u32) -> Result<String, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = |name: &str| {
        status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
            .to_owned()
    };
    let shown = format!("{}, {}", line("VmHWM"), line("VmRSS"));
    Ok(shown.replace(['\t', ' '], ""))
}
