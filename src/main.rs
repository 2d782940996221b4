//! The `rollout-operator` command.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    rollout_operator::cli::main().await
}
