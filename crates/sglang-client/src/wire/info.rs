//! What an engine says about itself.

use serde::Deserialize;

/// `GET /model_info`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ModelInfo {
    /// Where the weights came from.
    pub model_path: String,
    /// What chat requests call it.
    pub served_model_name: Option<String>,
    /// Where the tokenizer came from.
    pub tokenizer_path: Option<String>,
    /// The version that the trainer gave the weights.
    pub weight_version: Option<String>,
}

/// `GET /server_info`: what matters of its many fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// SGLang's version.
    pub version: String,
    /// Longest prompt plus output.
    pub context_length: Option<i64>,
    /// Requests that run at once.
    pub max_running_requests: Option<i64>,
}

/// `GET /v1/loads`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Loads {
    /// SGLang's version.
    pub version: String,
    /// One entry per data parallel rank.
    pub loads: Vec<Load>,
}

/// The load of one data parallel rank.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Requests being generated.
    pub num_running_reqs: u64,
    /// Requests in the queue.
    pub num_waiting_reqs: u64,
    /// Tokens in use.
    pub num_used_tokens: u64,
    /// Tokens per second.
    pub gen_throughput: f64,
}

impl Loads {
    /// Requests of all ranks, running or waiting.
    pub fn requests(&self) -> u64 {
        self.loads
            .iter()
            .map(|load| load.num_running_reqs + load.num_waiting_reqs)
            .sum()
    }
}
