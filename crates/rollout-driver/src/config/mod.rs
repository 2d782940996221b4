//! The driver's configuration: one JSON file, written by the controller or by `rollout-operator local`.
//!
//! It holds the job's spec as the user wrote it (camelCase, defaults filled in) and where things are. Fields of the spec that the
//! driver does not need are ignored here: they were validated before; what it needs and cannot do is refused.

mod plan;
mod rollout;
mod spec;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::error::DriverError;

pub use plan::{dataset_config, engine_config};
pub use rollout::{
    Concurrency, ErrorBudget, FilterSpec, FilterType, GranularitySpec, OverSampling, Partial,
    Rollout,
};
pub use spec::{
    Agentic, ClaimFile, DatasetSpec, Generate, JobSpec, OutputSpec, RewardPlugin, RewardSpec,
    Sampling, SamplingPolicy, SingleTurn, Teardown,
};

/// Whose driver this is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct JobIdentity {
    /// Name of the job.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid: what ledger and output are stamped with.
    pub uid: String,
    /// The attempt, from 1: the epoch of the ledger's writes.
    pub attempt: u64,
}

/// Where the tokenizer comes from, when prompts are tokenized here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerSource {
    /// The built-in one, which the simulated engine has.
    Builtin,
    /// A directory with Hugging Face files.
    Directory(PathBuf),
    /// The engines' sidecars, below this URL.
    Engines(String),
    /// A directory with files that came from there.
    Fetched {
        /// The directory.
        directory: PathBuf,
        /// Their digest.
        digest: String,
    },
}

/// Deadlines of calls that the spec has no field for. The defaults are meant for production.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// The router has to answer this soon after our start, and after it restarted.
    pub router_seconds: f64,
    /// Collection of one session's samples.
    pub collect_seconds: f64,
    /// One reward.
    pub reward_seconds: f64,
    /// One filter decision of a plug-in.
    pub filter_seconds: f64,
    /// A session that no agent claimed.
    pub queue_seconds: f64,
    /// The output of a step.
    pub output_seconds: f64,
    /// The pause before a first refill; doubles with each further one.
    pub refill_seconds: f64,
    /// The tokenizer's files from the engines.
    pub tokenizer_seconds: f64,
    /// A data set behind a URL of which no further byte comes.
    pub dataset_seconds: f64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            router_seconds: 60.0,
            collect_seconds: 120.0,
            reward_seconds: 120.0,
            filter_seconds: 60.0,
            queue_seconds: 3600.0,
            output_seconds: 600.0,
            refill_seconds: 0.25,
            tokenizer_seconds: 300.0,
            dataset_seconds: 120.0,
        }
    }
}

/// Seconds as a duration; what cannot be one is zero.
pub fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

#[expect(
    clippy::struct_field_names,
    reason = "the names are the configuration's"
)]
#[derive(Debug, Clone, Deserialize)]
struct File {
    job: JobIdentity,
    spec: Value,
    #[serde(default)]
    dataset_path: Option<PathBuf>,
    #[serde(default)]
    dataset_credentials_dir: Option<PathBuf>,
    ledger_dir: PathBuf,
    output_dir: PathBuf,
    router_url: String,
    #[serde(default)]
    engines: u32,
    #[serde(default)]
    control_token_file: Option<PathBuf>,
    #[serde(default)]
    plugin_socket: Option<PathBuf>,
    #[serde(default)]
    tokenizer: Option<String>,
    #[serde(default)]
    tokenizer_dir: Option<PathBuf>,
    #[serde(default)]
    tokenizer_url: Option<String>,
    #[serde(default = "loopback")]
    status_listen: String,
    #[serde(default)]
    termination_message_path: Option<PathBuf>,
    #[serde(default)]
    timeouts: Timeouts,
}

fn loopback() -> String {
    "127.0.0.1:0".to_owned()
}

/// Everything that the driver is told at its start.
#[derive(Debug, Clone)]
pub struct DriverConfig {
    /// Whose driver this is.
    pub job: JobIdentity,
    /// What the job wants: the part of its spec that the driver reads.
    pub spec: JobSpec,
    /// The data set's file; `None` fetches `spec.dataset.url`, or reads `spec.dataset.inline`.
    pub dataset_path: Option<PathBuf>,
    /// Where the Secret with the credentials of `spec.dataset.url` is mounted.
    pub dataset_credentials_dir: Option<PathBuf>,
    /// Digest of the file at `dataset_path`, when it was fetched.
    pub dataset_digest: Option<String>,
    /// Directory of the ledger, on a local file system.
    pub ledger_dir: PathBuf,
    /// Directory of the output.
    pub output_dir: PathBuf,
    /// The router's control port.
    pub router_url: String,
    /// How many engines there will be, where that is known: the router may know fewer of them at first.
    pub engines: u32,
    /// The control token.
    pub control_token: Option<String>,
    /// Socket of the Python plug-in host.
    pub plugin_socket: Option<PathBuf>,
    /// Where the tokenizer comes from.
    pub tokenizer: Option<TokenizerSource>,
    /// Address of the status server.
    pub status_listen: String,
    /// Where the last word goes.
    pub termination_message_path: Option<PathBuf>,
    /// Deadlines.
    pub timeouts: Timeouts,
}

impl DriverConfig {
    /// Reads a configuration file and the token file that it names.
    ///
    /// # Errors
    /// A file cannot be read, has another version, or a field that cannot be used.
    pub fn load(path: &Path) -> Result<Self, DriverError> {
        let text = std::fs::read_to_string(path).map_err(|source| DriverError::ReadFile {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|problem| match problem {
            DriverError::Config { problem } => DriverError::Config {
                problem: format!("{}: {problem}", path.display()),
            },
            other => other,
        })
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// As [`DriverConfig::load`].
    pub fn parse(text: &str) -> Result<Self, DriverError> {
        let refuse = |problem: String| DriverError::Config { problem };
        let version = serde_json::from_str::<Value>(text)
            .map_err(|error| refuse(error.to_string()))?
            .get("version")
            .and_then(Value::as_u64);
        if version != Some(1) {
            return Err(refuse(format!(
                "version is {}, this driver reads version 1",
                version.map_or("missing".to_owned(), |v| v.to_string())
            )));
        }
        let file: File = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        let File {
            job,
            spec,
            dataset_path,
            dataset_credentials_dir,
            ledger_dir,
            output_dir,
            router_url,
            engines,
            control_token_file,
            plugin_socket,
            tokenizer,
            tokenizer_dir,
            tokenizer_url,
            status_listen,
            termination_message_path,
            timeouts,
        } = file;
        let tokenizer = tokenizer_dir
            .or_else(|| tokenizer.map(PathBuf::from))
            .map(|directory| {
                if directory.as_os_str() == "builtin" {
                    TokenizerSource::Builtin
                } else {
                    TokenizerSource::Directory(directory)
                }
            })
            .or_else(|| tokenizer_url.map(TokenizerSource::Engines));
        Ok(Self {
            job,
            spec: JobSpec::read(spec)?,
            dataset_path,
            dataset_credentials_dir,
            dataset_digest: None,
            ledger_dir,
            output_dir,
            router_url,
            engines,
            control_token: control_token_file.map(|path| token(&path)).transpose()?,
            plugin_socket,
            tokenizer,
            status_listen,
            termination_message_path,
            timeouts,
        })
    }
}

fn token(path: &Path) -> Result<String, DriverError> {
    let text = std::fs::read_to_string(path).map_err(|source| DriverError::ReadFile {
        path: path.to_owned(),
        source,
    })?;
    Ok(text.trim().to_owned())
}
