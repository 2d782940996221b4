//! The operator on a real control plane: what it writes, what it takes of a machine, and how long it takes for many objects at once.
//!
//! `benches/run cluster [settled|restart|burst|writes|assignment]...` starts a cluster (`tests/cluster`) and runs this inside it. The operator is a process
//! beside the control plane, so that its memory and CPU time are its own. `writes` and `assignment` run real Pods; for the others this process plays
//! the kubelet of a node ([`node`]), since two cores cannot run a thousand Pods. `BENCH_JOBS`, `BENCH_POOLS`, `BENCH_BURST`, `BENCH_SECONDS` and the operator's
//! `BENCH_CONCURRENCY` are other numbers than those of docs/benchmarks.md.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot go on stops"
)]

mod assignment;
mod audit;
mod burst;
mod controller;
mod course;
mod manifests;
#[path = "../support/memory.rs"]
mod memory;
mod node;
#[path = "../support/part.rs"]
mod part;
mod plane;
mod population;
#[path = "../support/process.rs"]
mod process;
mod settled;
#[path = "../support/spread.rs"]
mod spread;
mod writes;

const PARTS: [&str; 5] = ["settled", "restart", "burst", "writes", "assignment"];

fn main() {
    part::run(async |_| {
        let wanted = part::arguments();
        let other = wanted.iter().find(|part| !PARTS.contains(&part.as_str()));
        if let Some(other) = other {
            panic!("no part {other}: {}", PARTS.join(", "));
        }
        let wants = |part: &str| wanted.iter().any(|wanted| wanted == part);
        if wants("writes") {
            writes::run().await;
        }
        if wants("assignment") {
            assignment::run().await;
        }
        if wants("burst") {
            burst::run().await;
        }
        if wants("settled") || wants("restart") {
            settled::run(wants("settled"), wants("restart")).await;
        }
    });
}

/// A count from the environment.
fn count(variable: &str, default: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().unwrap())
}
