//! Runs the shim, or the supervisor of the plug-in host, as a child, so that one that is killed leaves nothing behind either.
//!
//! ```text
//!  guard  ---- standard input ---->  shim  ---->  the user's processes
//! ```
//!
//! The shim ends the user's processes; when the shim itself is killed, they fall to the guard, which ends them all. When the guard is
//! killed, the shim's standard input ends, and the shim ends as if it had been told to terminate.

use std::{
    io,
    process::{ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::processes::{Ending, Processes, guard_this_process};

/// Runs `command`, passes `stop` on as SIGTERM, and ends what is left below this process when it is gone.
///
/// # Errors
/// When the command cannot be started or waited for.
pub async fn run_guarded(mut command: Command, stop: CancellationToken) -> io::Result<ExitStatus> {
    guard_this_process()?;
    let processes = Processes::here();
    let (mut child, leader) = processes.spawn(command.stdin(Stdio::piped()))?;
    // Waiting for a child closes its input, which would end it.
    let input = child.stdin.take();
    let status = tokio::select! {
        status = child.wait() => status,
        () = stop.cancelled() => {
            let _ = kill(Pid::from_raw(leader), Signal::SIGTERM);
            child.wait().await
        }
    };
    drop(input);
    processes.end(&Ending::everything(leader)).await;
    status
}
