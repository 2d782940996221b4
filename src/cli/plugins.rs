//! `rollout-operator plugins`: the Python plug-in host beside the driver.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use rollout_agent::{
    plugins::{self, PluginsConfig},
    shim,
};

use super::{
    agent::{seconds, stop_on_signal, stop_with_stdin, variable},
    guard,
};

/// Runs the Python plug-in host beside the driver.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Unix socket on which the host listens.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Interpreter.
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// Directory of the plug-ins' modules, put in front of `sys.path`.
    #[arg(long, value_name = "DIR")]
    code: Option<PathBuf>,
    /// A variable for the plug-ins' environment.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// Passes the whole environment on, as in a container whose environment is the user's own. Without it only PATH, HOME,
    /// LANG, LC_*, TZ, TMPDIR and PYTHON* pass.
    #[arg(long)]
    inherit_environment: bool,
    /// How long the host may not answer, because of an import or a function that blocks its event loop, before it is killed.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    unresponsive_seconds: Duration,
    /// Ends when standard input is closed.
    #[arg(long)]
    exit_with_stdin: bool,
    /// Says that this process runs below its guard.
    #[arg(long, hide = true)]
    guarded: bool,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !args.guarded && guard::is_needed() {
        return guard::run("plugins", args.exit_with_stdin).await;
    }
    shim::guard_this_process().context("cannot become the reaper of the plug-ins' processes")?;
    let stop = stop_on_signal()?;
    if args.guarded || args.exit_with_stdin {
        stop_with_stdin(&stop);
    }
    let config = PluginsConfig {
        socket: args.socket,
        python: args.python,
        code: args.code,
        environment: shim::clean_environment(
            std::env::vars_os(),
            args.inherit_environment,
            &args.environment,
        ),
        unresponsive_after: args.unresponsive_seconds,
    };
    plugins::run(config, stop).await?;
    Ok(ExitCode::SUCCESS)
}
