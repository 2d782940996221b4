//! The rollout-operator: RL rollouts as Kubernetes objects.
//!
//! This package holds what knows Kubernetes ([`api`]) and the command line ([`cli`]). Everything else is a crate under `crates/`:
//! sessions, the batch loop, the router, the driver, the agents' side and the simulated engine.

pub mod api;
pub mod cli;
pub mod controllers;
pub mod plan;
pub mod resources;
