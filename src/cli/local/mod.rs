//! `rollout-operator local`: one `RolloutJob` on this machine, from the files that `kubectl apply` takes.
//!
//! This is the supervisor: what controller and kubelet are on a cluster. It starts simulated engines, the router, the driver and agent
//! pods as child processes, starts again what dies, polls the driver's status, and ends everything in order. The parts themselves are the
//! same as on a cluster.
//!
//! Caveats: agents share this machine and this user; only on a cluster are they isolated from each other and from the network.

mod agent_command;
mod agents;
mod commands;
mod control;
mod engine_check;
mod engines;
mod environment;
mod inputs;
mod job;
mod last_word;
mod log;
mod patience;
mod pod;
mod progress;
mod python;
mod run_dir;
mod secrets;
mod service;
mod setup;
mod tokenizer;
mod waiting;
mod workdir;
mod workplace;

use std::{path::PathBuf, process::ExitCode};

/// Runs one `RolloutJob` on this machine.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Manifests: the job, its pool, and the `ConfigMap`s and Secrets that they name. A directory means all its YAML and JSON files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where samples go. A second start with the same directory resumes the job.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// URL of an engine that runs already, in place of simulated ones; repeat it for several.
    #[arg(long = "engine", value_name = "URL")]
    engines: Vec<String>,
    /// CAs that may vouch for engines behind https, as PEM text; default: those of the pool, else those that browsers trust.
    #[arg(long, value_name = "FILE")]
    engine_ca: Option<PathBuf>,
    /// Directory with the model's `tokenizer.json`, for prompts that we have to tokenize; default: the simulated engine's own.
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Interpreter that runs agents and plug-ins, Python 3.9 or later [default: python3].
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The job to run, when the files have several.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Most agent pods at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pods: u32,
    /// Directory that stands for a persistent volume claim; repeat it for several.
    #[arg(long = "volume", value_name = "CLAIM=DIR", value_parser = parse_volume)]
    volumes: Vec<(String, PathBuf)>,
}

fn parse_volume(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((claim, directory)) if !claim.is_empty() && !directory.is_empty() => {
            Ok((claim.to_owned(), PathBuf::from(directory)))
        }
        _ => Err("write it as CLAIM=DIR".to_owned()),
    }
}

/// Runs the sub-command: 0 when the job succeeded, 1 when it failed or could not start, 130 when it was interrupted.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(setup) = setup::prepare(&args).await? else {
        return Ok(ExitCode::FAILURE);
    };
    Box::pin(job::run(setup)).await
}
