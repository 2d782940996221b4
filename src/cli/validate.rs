//! `rollout-operator validate`.

use std::process::ExitCode;

/// Checks manifests offline.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
