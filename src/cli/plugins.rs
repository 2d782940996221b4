//! `rollout-operator plugins`.

use std::process::ExitCode;

/// Runs the Python plug-in host beside the driver.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the sub-command.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built")
}
