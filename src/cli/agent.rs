//! `rollout-operator agent`.

use std::process::ExitCode;

/// Runs the launcher or the shim of an agent pod.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
