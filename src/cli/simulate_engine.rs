//! `rollout-operator simulate-engine`.

use std::process::ExitCode;

/// Runs a simulated SGLang engine.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
