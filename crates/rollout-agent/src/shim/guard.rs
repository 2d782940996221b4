//! Runs the shim as a child, so that a shim that is killed leaves nothing behind either.
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

/// Runs `shim`, passes `stop` on as SIGTERM, and ends what is left below this process when it is gone.
///
/// # Errors
/// When the shim cannot be started or waited for.
pub async fn run_guarded(mut shim: Command, stop: CancellationToken) -> io::Result<ExitStatus> {
    guard_this_process()?;
    let processes = Processes::default();
    let (mut child, leader) = processes.spawn(shim.stdin(Stdio::piped()))?;
    // Waiting for a child closes its input, which would end the shim.
    let input = child.stdin.take();
    let status = tokio::select! {
        status = child.wait() => status,
        () = stop.cancelled() => {
            let _ = kill(Pid::from_raw(leader), Signal::SIGTERM);
            child.wait().await
        }
    };
    drop(input);
    processes
        .end(&Ending {
            leader,
            mark: String::new(),
            keep: std::collections::HashSet::new(),
        })
        .await;
    status
}
