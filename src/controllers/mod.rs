//! The controllers: the only place that talks to the Kubernetes API.
//!
//! ```text
//! watches -> caches -> queue -> frame (limit, panics, backoff) -> observe -> validate -> build -> plan -> apply -> prune -> status
//! ```
//!
//! - [`pool`] reconciles `SGLangPool`, [`job`] reconciles `RolloutJob`.
//! - [`runtime`] is what all controllers share.
//! - [`manager`] runs one process: election, watches, serving, and the order of a stop.
//!
//! Guarantees: only the leader writes; nothing is written when nothing changed; an object that fails holds up no other; a kill at any moment
//! leaves nothing that the next process does not bring to its end.

mod error;
pub mod job;
mod jobs;
pub mod manager;
mod part;
pub mod pool;
mod pools;
mod roots;
pub mod runtime;
mod trimming;
mod trouble;

pub use error::{Class, Error};
