//! Configuration: the `simulator` object of a pool's engine, and what the engine's own flags say.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::faults::Fault;

/// Everything about a simulated engine. All fields are optional in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Whose wire is spoken.
    pub profile: Profile,
    /// Seed of everything that looks random.
    pub seed: u64,
    /// How many times faster than real time the engine runs.
    pub time_scale: u32,
    /// Prompt tokens per second that prefill computes.
    pub prefill_tokens_per_second: u32,
    /// Tokens per second of a request that runs alone.
    pub decode_tokens_per_second: u32,
    /// How much longer every further running request makes each step, in percent.
    pub decode_slowdown_percent: u32,
    /// Largest running batch.
    pub max_running_requests: u32,
    /// Largest waiting queue; 0 is no limit.
    pub max_queued_requests: u32,
    /// Memory of the engine and its prefix cache, in tokens.
    pub kv_cache_tokens: u32,
    /// What the model says.
    pub replies: Replies,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What the engine's command line says.
    pub server: Server,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::Stock,
            seed: 0,
            time_scale: 1,
            prefill_tokens_per_second: 8000,
            decode_tokens_per_second: 170,
            decode_slowdown_percent: 1,
            max_running_requests: 256,
            max_queued_requests: 0,
            kv_cache_tokens: 524_288,
            replies: Replies::default(),
            faults: Vec::new(),
            server: Server::default(),
        }
    }
}

/// Whose wire is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Profile {
    /// SGLang 0.5.23 as released.
    #[default]
    Stock,
    /// The branch that Miles installs: `logprobs.content[*]` of a chat has a `token_id`, an abort may name a prefix.
    MilesFork,
}

/// What the model says; at most one member. None: random tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Replies {
    /// Answers problems of a data set.
    pub oracle: Option<Oracle>,
    /// Answers by rules.
    pub script: Option<Script>,
    /// Random tokens with lengths of a distribution.
    pub lengths: Option<Lengths>,
}

/// Answers right with a given probability, in `\boxed{}`, with some words before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Oracle {
    /// How many of 100 answers are right.
    pub correct_percent: u32,
    /// How many words come before the answer.
    pub words: WordRange,
    /// Problems and labels.
    pub dataset: Dataset,
}

impl Default for Oracle {
    fn default() -> Self {
        Self {
            correct_percent: 50,
            words: WordRange::default(),
            dataset: Dataset::default(),
        }
    }
}

/// A range of word counts, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WordRange {
    /// Fewest.
    pub min: u32,
    /// Most.
    pub max: u32,
}

impl Default for WordRange {
    fn default() -> Self {
        Self { min: 4, max: 40 }
    }
}

/// Problems with their labels: a JSONL file, or values, or both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Dataset {
    /// A JSONL file.
    pub path: Option<PathBuf>,
    /// Key of the prompt in a row: a text, or chat messages of which the last user message counts.
    pub prompt_key: String,
    /// Key of the label in a row.
    pub label_key: String,
    /// Problems by value.
    pub pairs: Vec<Pair>,
}

impl Default for Dataset {
    fn default() -> Self {
        Self {
            path: None,
            prompt_key: "prompt".into(),
            label_key: "label".into(),
            pairs: Vec::new(),
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// A text, or chat messages.
    pub prompt: Value,
    /// The right answer.
    pub label: Value,
}

/// Rules that answer; see [`crate::replies::script`]. Exactly one of `path` and `inline`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Script {
    /// A YAML file.
    pub path: Option<PathBuf>,
    /// The YAML itself.
    pub inline: Option<String>,
    /// Problems and labels for the script's `answer` replies.
    pub dataset: Dataset,
}

/// A log-normal distribution of output lengths with stragglers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Lengths {
    /// Half of the outputs are shorter.
    pub median_tokens: u32,
    /// Standard deviation of the logarithm, in percent.
    pub sigma_percent: u32,
    /// How many of 100 outputs are stragglers.
    pub tail_percent: u32,
    /// How many times longer a straggler is.
    pub tail_factor: u32,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            median_tokens: 200,
            sigma_percent: 100,
            tail_percent: 2,
            tail_factor: 10,
        }
    }
}

/// What the command line of the engine says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Server {
    /// `--model-path`.
    pub model_path: String,
    /// `--served-model-name`; the model path when absent.
    pub served_model_name: Option<String>,
    /// A directory with `tokenizer.json`; the built-in tokenizer when absent.
    pub tokenizer: Option<PathBuf>,
    /// `--context-length`.
    pub context_length: u32,
    /// `--weight-version`.
    pub weight_version: String,
    /// `--tool-call-parser`: `qwen` and `qwen25` are the same; none leaves tool calls in the content.
    pub tool_call_parser: Option<String>,
    /// `--reasoning-parser`: with any, `<think>` parts become `reasoning_content`.
    pub reasoning_parser: Option<String>,
    /// `--enable-memory-saver`: without it, `/release_memory_occupation` ends the server, as the real one on CPU.
    pub memory_saver: bool,
    /// `--host`, as `/server_info` shows it.
    pub host: String,
    /// `--port`, as `/server_info` shows it.
    pub port: u16,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            model_path: "simulated".into(),
            served_model_name: None,
            tokenizer: None,
            context_length: 32_768,
            weight_version: "default".into(),
            tool_call_parser: Some("qwen25".into()),
            reasoning_parser: None,
            memory_saver: false,
            host: "127.0.0.1".into(),
            port: 30_000,
        }
    }
}

impl Config {
    /// Checks bounds.
    ///
    /// # Errors
    /// Names the first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), Error> {
        let positive = [
            ("timeScale", self.time_scale),
            ("prefillTokensPerSecond", self.prefill_tokens_per_second),
            ("decodeTokensPerSecond", self.decode_tokens_per_second),
            ("maxRunningRequests", self.max_running_requests),
        ];
        for (field, value) in positive {
            if value == 0 {
                return Err(Error::config(field, "must be at least 1"));
            }
        }
        let Server {
            model_path,
            served_model_name,
            weight_version,
            ..
        } = &self.server;
        let texts = [
            ("server.modelPath", Some(model_path)),
            ("server.servedModelName", served_model_name.as_ref()),
            ("server.weightVersion", Some(weight_version)),
        ];
        for (field, text) in texts {
            if text.is_some_and(|text| text.trim().is_empty()) {
                return Err(Error::config(
                    field,
                    "is empty; leave it out, or write a name",
                ));
            }
        }
        if self.server.context_length < 16 {
            return Err(Error::config("server.contextLength", "must be at least 16"));
        }
        if self.kv_cache_tokens < self.server.context_length {
            let problem = format!(
                "is {}, but one request may take {} tokens: raise it, or lower the context length",
                self.kv_cache_tokens, self.server.context_length
            );
            return Err(Error::config("kvCacheTokens", problem));
        }
        self.replies.validate()?;
        for (index, fault) in self.faults.iter().enumerate() {
            fault
                .validate()
                .map_err(|problem| Error::config(format!("faults[{index}]"), problem))?;
        }
        Ok(())
    }
}

impl Replies {
    fn validate(&self) -> Result<(), Error> {
        let given = [
            self.oracle.is_some(),
            self.script.is_some(),
            self.lengths.is_some(),
        ];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err(Error::config(
                "replies",
                "give at most one of oracle, script and lengths",
            ));
        }
        if let Some(oracle) = &self.oracle {
            percent("replies.oracle.correctPercent", oracle.correct_percent)?;
            if oracle.words.min > oracle.words.max {
                return Err(Error::config("replies.oracle.words", "min is above max"));
            }
        }
        if let Some(lengths) = &self.lengths {
            percent("replies.lengths.tailPercent", lengths.tail_percent)?;
            if lengths.median_tokens == 0 || lengths.tail_factor == 0 {
                return Err(Error::config(
                    "replies.lengths",
                    "medianTokens and tailFactor must be at least 1",
                ));
            }
        }
        Ok(())
    }
}

pub(crate) fn percent(field: &str, value: u32) -> Result<(), Error> {
    if value > 100 {
        return Err(Error::config(field, format!("is {value}; write 0 to 100")));
    }
    Ok(())
}
