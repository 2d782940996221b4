//! What sessions cost in memory and what a turn costs besides the engine, in one process without a socket.
//!
//! `benches/run sessions [memory|turns|replay]`. Memory is the process's resident memory before and after; times are medians, and both
//! sides of a comparison alternate.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on stops"
)]

mod memory;
mod replay;
#[path = "../support/resident.rs"]
mod resident;
mod turns;

fn main() {
    let part = std::env::args().skip(1).find(|part| part != "--bench");
    match part.as_deref() {
        Some("memory") => memory::measure(),
        Some("turns") => turns::measure(),
        Some("replay") => replay::measure(),
        None => {
            memory::measure();
            turns::measure();
            replay::measure();
        }
        Some(other) => panic!("no part {other}: memory, turns or replay"),
    }
}

/// The middle of several figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
