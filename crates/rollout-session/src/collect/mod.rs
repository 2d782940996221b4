//! Turns become training samples.
//!
//! Collection has two phases, so that it stays pure: [`plan`] says which turns make which sample and which token ids somebody has to
//! decode; [`CollectPlan::assemble`] takes the decoded texts and builds the samples. An output that could not be decoded is put together
//! from the texts of its tokens; a gap that could not be decoded is left out of `response` and counted. Token ids never depend on it.
//!
//! Rules (Miles's): a turn that passes the token budget is cut or dropped, with everything after it; turns merge where each prompt
//! starts with everything before; merging stops at the first turn that did not complete. Loss mask 1 on what the engine generated, 0
//! on everything between. Of a tree, a [`Picker`] says which leaves count, and a turn that several of them share is trained in one.
//!
//! A turn whose replay rows are not what they should be ends its sample before it; Miles refuses the collection. What was left out and
//! why is in [`CollectPlan::shortened`] and in the session's metadata.

mod assemble;
mod merge;
mod pick;
mod plan;
mod replay;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sample::Sample;

pub use merge::Shortened;
pub use pick::Picker;
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

/// What is known about routed experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutedExperts {
    /// Layers of the model.
    pub layers: usize,
    /// Each turn has the rows that the turns before it do not have, not those of the whole conversation.
    pub additional: bool,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CollectOptions {
    /// Token budget of a sample, prompt included.
    pub max_seq_len: Option<usize>,
    /// Merged into each sample's metadata; keys that the session sets win. Of a tree its `reward` is every sample's reward.
    pub metadata: Map<String, Value>,
    /// All runs, not only the first one.
    pub split: bool,
    /// Routed experts are part of the samples.
    pub routed_experts: Option<RoutedExperts>,
    /// Indexer rows are part of the samples.
    pub indexer_topk: bool,
    /// Which leaves of a tree become samples.
    pub picker: Picker,
    /// The last turn's messages are part of its sample's metadata.
    pub messages: bool,
}

/// The samples of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Collected {
    /// In the order in which their first turns were recorded; of a tree, in the picker's order.
    pub samples: Vec<Sample>,
    /// Facts about the session.
    pub session_metadata: Map<String, Value>,
    /// Set when there is no sample.
    pub empty_reason: Option<EmptyReason>,
}
