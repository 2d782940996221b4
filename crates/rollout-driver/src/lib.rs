//! The rollout driver: data sets, generate functions, rewards, ledger and output around `rollout-engine`.
//!
//! **Purpose.** One driver owns one job's data. It is a thin interpreter of the pure batch loop: it carries out the commands of
//! [`rollout_engine::Engine`] and reports what came of them.
//!
//! ```text
//!   download, dataset --> run (engine + interpreter) --> generate --> router --> engines, agents
//!                 |  ^         |                              |
//!               ledger       output, status               reward (worker pool, plug-in host)
//! ```
//!
//! **Guarantees.** `kill -9` at any moment loses what was in flight, never what was kept; the ledger sums up. Everything external has
//! a deadline. The teardown ladder runs on target, signal and deadline alike.

pub mod config;
pub mod dataset;
pub mod download;
pub mod error;
pub mod generate;
pub mod ledger;
pub mod output;
pub mod plugins;
pub mod reward;
pub mod router;
pub mod run;
pub mod status;
pub mod tokenizer_files;
pub mod unusable;

mod digest;
mod json_error;
