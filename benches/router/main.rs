//! What the session router costs, as processes on loopback: an engine that answers with prepared bytes, the router, and the load.
//!
//! `benches/run router [turns|pass-through|fence|vanish]`. CPU time is the router process's own, from `/proc`, so that neither the load nor the
//! engine is in it. Other work on the machine disturbs it less than it does times; measurements repeat, and both sides of a comparison
//! alternate in one run.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on stops"
)]

#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/client.rs"]
mod client;
mod engine;
mod fence;
#[path = "../support/part.rs"]
mod part;
mod pass_through;
mod peer;
#[path = "../support/process.rs"]
mod process;
mod replies;
#[path = "../support/spread.rs"]
mod spread;
mod turns;
mod vanish;

use process::{Process, command, operator};

fn main() {
    part::run(async |part| match part {
        Some("engine") => engine::serve().await,
        Some("turns") => turns::measure().await,
        Some("pass-through") => pass_through::measure().await,
        Some("fence") => fence::measure().await,
        Some("vanish") => vanish::measure().await,
        None => {
            turns::measure().await;
            pass_through::measure().await;
            fence::measure().await;
            vanish::measure().await;
        }
        Some(other) => panic!("no part {other}: turns, pass-through, fence or vanish"),
    });
}

/// The engine that answers at once, in a process of its own.
fn start_engine() -> Process {
    Process::announcing(command(&std::env::current_exe().unwrap(), &["engine"]))
}

/// Our router in front of engines.
fn start_router(engines: &[String]) -> Process {
    let mut arguments = vec!["router", "--exit-with-stdin", "--job", "bench"];
    for engine in engines {
        arguments.extend(["--engine", engine]);
    }
    Process::announcing(operator(&arguments))
}
