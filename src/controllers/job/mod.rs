//! `RolloutJob`: the driver of each attempt, agents' Pods by its demand, the end.
//!
//! ```text
//! observe (caches, what the driver said) -> dereference (pool) -> validate -> plan (pure) -> [look up] -> status -> delete, release -> build, apply, create
//! ```
//!
//! The status comes first: an attempt's number is in it before the attempt's Pod is made, and the end before the driver's last word is let
//! go. Pods are created, never applied: an apply onto a Pod that ended would be answered as if it ran. `drivers` asks drivers beside the
//! reconciles, so that a driver that hangs holds up nothing.

mod acts;
mod agent_fault;
mod context;
mod drivers;
mod lookup;
mod make;
mod memory;
mod mounts;
mod observe;
mod reconciler;
mod refusal;
mod status;
mod subject;
mod unread;

pub use context::{Context, Enqueue, OfJob};
pub use drivers::Drivers;
pub use reconciler::JobReconciler;
