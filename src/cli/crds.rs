//! `rollout-operator crds`.

use std::process::ExitCode;

/// Prints the custom resource definitions.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
