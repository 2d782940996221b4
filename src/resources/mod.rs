//! The Kubernetes objects of a pool and of a job: a spec that was validated goes in, objects come out.
//!
//! - [`pool`]: engines, their Service, policy, budget and account, the pool's router, settings of simulated engines.
//! - [`job`]: secret, settings, Service, policies, the driver Pod of an attempt, agent Pods, the job's own pool.
//! - [`Object`]: raw JSON, so that fields of users' templates that are newer than this client survive.
//! - [`overlay`]: how a user's Pod template is merged.
//! - [`names`], [`labels`], [`revision`], [`secrets`]: what objects are called, found by, compared by, and trusted by.
//!
//! Guarantees: pure, the same input gives the same bytes; everything carries the operator's labels; no Pod holds credentials of the cluster;
//! what a template wanted and did not get is listed, not dropped.
//!
//! Caveats: whether what a spec refers to (claims, secrets, config maps, runtime classes) exists is not looked at here.

mod error;
pub mod job;
pub mod labels;
pub mod names;
mod object;
pub mod overlay;
mod owner;
pub mod pool;
mod probes;
mod quantity;
mod rendering;
pub mod revision;
pub mod secrets;
mod security;
mod volumes;

pub use error::Refusal;
pub use object::{Kind, Object};
pub use owner::Owner;
pub use rendering::Rendering;
