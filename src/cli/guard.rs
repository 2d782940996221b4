//! A command that runs itself again below a guard: whatever the user's code leaves behind ends with it, also after a `kill -9`.

use std::{ffi::OsString, os::unix::process::ExitStatusExt, process::ExitCode};

use anyhow::Context;
use rollout_agent::shim;

use super::agent::{stop_on_signal, stop_with_stdin};

/// The flag that says to a command that it runs below its guard.
pub(super) const FLAG: &str = "--guarded";

/// Whether a process that was not told so is its own guard: with the first process of a container everything else ends.
pub(super) fn is_needed() -> bool {
    std::process::id() != 1
}

/// Runs this command again, with [`FLAG`] behind the last word of its sub-command, and answers its exit code.
pub(super) async fn run(subcommand: &str, exit_with_stdin: bool) -> anyhow::Result<ExitCode> {
    let stop = stop_on_signal()?;
    if exit_with_stdin {
        stop_with_stdin(&stop);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let own: Vec<OsString> = std::env::args_os().collect();
    let after = own
        .iter()
        .position(|argument| argument == subcommand)
        .context("cannot find the sub-command")?
        + 1;
    let mut command = tokio::process::Command::new(program);
    command.args(&own[1..after]).arg(FLAG).args(&own[after..]);
    let status = shim::run_guarded(command, stop)
        .await
        .context("cannot run below a guard")?;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
