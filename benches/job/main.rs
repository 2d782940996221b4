//! A whole job, as processes: what driver and router take of a machine.
//!
//! `benches/run job [single-turn|agentic]`. CPU time and memory are each process's own, from `/proc`.

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
#[path = "../support/part.rs"]
mod part;
#[path = "../support/process.rs"]
mod process;

fn main() {
    part::run(async |part| match part {
        Some("single-turn") => jobs::single_turn().await,
        Some("agentic") => jobs::agentic().await,
        None => {
            jobs::single_turn().await;
            jobs::agentic().await;
        }
        Some(other) => panic!("no part {other}: single-turn or agentic"),
    });
}
