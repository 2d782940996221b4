//! A simulated SGLang engine: the wire of SGLang 0.5.23 without a GPU.
//!
//! **What it is for**: the engine of a pool without accelerators, the double in tests, and capacity planning. It must be faithful:
//! `tests/captures/` holds exchanges of a real SGLang 0.5.23 on CPU, and a test replays every one of them.
//!
//! **How it is built**, from the inside out:
//! - [`scheduler`]: a continuous-batching scheduler with a radix prefix cache. Pure: time goes in as a number, events come out.
//! - [`replies`]: what the model "says": random tokens, an oracle, a script, or lengths of a distribution. Deterministic.
//! - `engine`: what SGLang's tokenizer manager does: request ids, the pause gate, weight updates, aborts, lost clients; one task
//!   drives the scheduler for all requests, so that a request in flight costs its prompt and little more.
//! - `http` over `wire`: the routes, thin, and the bodies with their key order and texts.
//! - [`faults`]: wrong behaviour on demand, as a layer in front of the routes.
//!
//! A [`Simulator`] is a value: a test builds it and calls its router without a socket. Nothing runs before the first request.
//!
//! **Time**: every duration of the model, and every time-out of the simulated server, is divided by `timeScale`. Times on the wire
//! are simulated ones. Waits use tokio's clock, so a paused clock works.

mod clock;
mod config;

mod engine;
mod error;
pub mod faults;
mod http;
mod numbers;
pub mod replies;
pub mod scheduler;
mod simulator;
mod wire;

pub use config::{
    Config, Dataset, Lengths, Oracle, Pair, Profile, Replies, Script, Server, WordRange,
};
pub use engine::report::{PathReport, StateReport};
pub use error::Error;
pub use faults::{Fault, FaultKind};
pub use simulator::Simulator;
