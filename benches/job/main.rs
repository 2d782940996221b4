//! A whole job, as processes: what driver and router take of a machine, and what a simulated engine takes under load.
//!
//! `benches/run job [single-turn|agentic|simulator]`. CPU time and memory are each process's own, from `/proc`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on stops"
)]

mod agents;
#[path = "../support/client.rs"]
mod client;
mod jobs;
#[path = "../support/memory.rs"]
mod memory;
#[path = "../support/process.rs"]
mod process;
mod simulator;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let part = arguments.first().map(String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match part {
            Some("single-turn") => jobs::single_turn().await,
            Some("agentic") => jobs::agentic().await,
            Some("simulator") => simulator::measure().await,
            None => {
                jobs::single_turn().await;
                jobs::agentic().await;
                simulator::measure().await;
            }
            Some(other) => panic!("no part {other}: single-turn, agentic or simulator"),
        }
    });
}
