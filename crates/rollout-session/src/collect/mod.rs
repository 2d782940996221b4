//! Turns become training samples.
//!
//! Collection has two phases, so that it stays pure: [`plan`] says which turns make which sample and which token ids somebody has to
//! decode; [`CollectPlan::assemble`] takes the decoded texts and builds the samples. An output that could not be decoded is put together
//! from the texts of its tokens; a gap that could not be decoded is left out of `response` and counted. Token ids never depend on it.
//!
//! Rules (Miles's): a turn that passes the token budget is cut or dropped, with everything after it; turns merge where each prompt
//! starts with everything before; merging stops at the first turn that did not complete. Loss mask 1 on what the engine generated, 0
//! on everything between.

mod assemble;
mod plan;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sample::Sample;

pub use plan::{CollectPlan, plan};

/// Why there is no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyReason {
    /// Nothing was recorded.
    NoRecords,
    /// The token budget left nothing.
    AllTruncated,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CollectOptions {
    /// Token budget of a sample, prompt included.
    pub max_seq_len: Option<usize>,
    /// Merged into each sample's metadata; keys that the session sets win.
    pub metadata: Map<String, Value>,
    /// All runs, not only the first one.
    pub split: bool,
}

/// The samples of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Collected {
    /// In the order in which their first turns were recorded.
    pub samples: Vec<Sample>,
    /// Facts about the session.
    pub session_metadata: Map<String, Value>,
    /// Set when there is no sample.
    pub empty_reason: Option<EmptyReason>,
}
