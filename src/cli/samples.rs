//! `rollout-operator samples`.

use std::process::ExitCode;

/// Shows and checks training samples.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
