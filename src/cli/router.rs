//! `rollout-operator router`.

use std::process::ExitCode;

/// Runs the session router.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
