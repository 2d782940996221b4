//! `rollout-operator driver`.

use std::process::ExitCode;

/// Runs the driver of one job.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
