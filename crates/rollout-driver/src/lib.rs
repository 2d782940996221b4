//! The rollout driver: datasets, generate functions, rewards, ledger and output around rollout-engine.

pub mod dataset;
pub mod output;
pub mod reward;

mod digest;
