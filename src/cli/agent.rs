//! `rollout-operator agent install|launch|exec`: what an agent pod runs around the user's code.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use rollout_agent::{
    install,
    launcher::{self, LauncherConfig, LauncherEnd, Surroundings},
    shim::{self, Agent, Function, ShimConfig},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use super::guard;

/// Exit code of a process that was told to end.
const INTERRUPTED: u8 = 143;

/// Longest claim token that is read, in bytes.
const MAX_TOKEN: u64 = 4096;

/// Runs the launcher or the shim of an agent pod.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copies this program into a directory that the agent's container mounts.
    Install(Install),
    /// Claims sessions from the router and has the shim run them.
    Launch(Launch),
    /// Runs the agent for the launcher: a command per session, or a Python function.
    Exec(Exec),
}

#[derive(Debug, ClapArgs)]
struct Install {
    /// The directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("claim_token").required(true)))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are flags of a command line"
)]
struct Launch {
    /// The router's agents' port.
    #[arg(long, value_name = "URL")]
    router: String,
    /// Reads the pod's claim token from the first line of standard input: where launcher and agent run on one machine, arguments
    /// and environment can be read by others.
    #[arg(long, group = "claim_token")]
    claim_token_stdin: bool,
    /// Variable with the pod's claim token: in a container of its own nobody else reads its environment.
    #[arg(long, value_name = "NAME", group = "claim_token")]
    claim_token_env: Option<String>,
    /// Once its work is done, waits to be told to end: a native sidecar that exits is started again.
    #[arg(long)]
    until_stopped: bool,
    /// Directory that launcher and shim share.
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// Sessions at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    concurrent: u16,
    /// Sessions in all; 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 1)]
    sessions_per_pod: usize,
    /// How long a cancelled agent may take to end by itself.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    cancel_grace_seconds: Duration,
    /// Grace period of the pod; when told to end, everything fits in half of it.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    grace_period_seconds: Duration,
    /// How long the agent may take to be loaded.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    load_timeout_seconds: Duration,
    /// How long the shim may be away.
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    shim_timeout_seconds: Duration,
    /// How long the router may be away between sessions.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    router_timeout_seconds: Duration,
    /// How long an end that may be the pod's (the agent's container is gone; the agent failed beside a sandbox) waits for the word of
    /// whoever watches the pod, before it is reported as it was seen. 0: nobody watches it.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pod_word_seconds: Duration,
    /// The agent works in other containers too.
    #[arg(long)]
    sandbox: bool,
    /// Ends when standard input is closed.
    #[arg(long)]
    exit_with_stdin: bool,
}

#[derive(Debug, ClapArgs)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are flags of a command line"
)]
struct Exec {
    /// Directory that launcher and shim share.
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// The agent function.
    #[arg(
        long,
        value_name = "MODULE.ATTR",
        requires = "python",
        conflicts_with = "command"
    )]
    function: Option<String>,
    /// Interpreter of the function.
    #[arg(long, value_name = "PATH", requires = "function")]
    python: Option<PathBuf>,
    /// Directory of the function's module, put in front of `sys.path`.
    #[arg(long, value_name = "DIR", requires = "function")]
    code: Option<PathBuf>,
    /// JSON file with the job's parameters, the attributes of `args`.
    #[arg(long, value_name = "FILE", requires = "function")]
    parameters: Option<PathBuf>,
    /// A variable for the agent's environment.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// Passes the whole environment on, as in a container whose environment is the user's own. Without it only PATH, HOME,
    /// LANG, LC_*, TZ, TMPDIR and PYTHON* pass.
    #[arg(long)]
    inherit_environment: bool,
    /// How long the launcher may be away.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    launcher_timeout_seconds: Duration,
    /// Grace period of the pod.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    grace_period_seconds: Duration,
    /// Does not pass the agent's output on to standard error.
    #[arg(long)]
    quiet: bool,
    /// Ends when standard input is closed.
    #[arg(long)]
    exit_with_stdin: bool,
    /// Says that this process is the shim below its guard.
    #[arg(long, hide = true)]
    guarded: bool,
    /// The command, run once per session.
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "function"
    )]
    command: Vec<OsString>,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Install(install) => install_program(&install),
        Command::Launch(launch) => run_launcher(launch).await,
        Command::Exec(exec) if exec.guarded || !guard::is_needed() => run_shim(exec).await,
        Command::Exec(exec) => guard::run("exec", exec.exit_with_stdin).await,
    }
}

fn install_program(args: &Install) -> anyhow::Result<ExitCode> {
    // By this name, because it is this very file even when another one has taken its place.
    let installed = install::install(Path::new("/proc/self/exe"), &args.directory)?;
    tracing::info!(program = %installed.display(), "installed");
    Ok(ExitCode::SUCCESS)
}

async fn run_launcher(args: Launch) -> anyhow::Result<ExitCode> {
    shim::hide_this_process().context("cannot hide the claim token")?;
    let stop = stop_on_signal()?;
    let claim_token = if let Some(name) = &args.claim_token_env {
        if args.exit_with_stdin {
            stop_with_stdin(&stop);
        }
        token_in(name, std::env::var_os(name))?
    } else {
        read_token(args.exit_with_stdin.then(|| stop.clone())).await?
    };
    let config = LauncherConfig {
        concurrent: args.concurrent.into(),
        sessions_per_pod: args.sessions_per_pod,
        cancel_grace: args.cancel_grace_seconds,
        grace_period: args.grace_period_seconds,
        load_timeout: args.load_timeout_seconds,
        shim_timeout: args.shim_timeout_seconds,
        router_timeout: args.router_timeout_seconds,
        pod_word: args.pod_word_seconds,
        surroundings: if args.sandbox {
            Surroundings::Sandbox
        } else {
            Surroundings::Own
        },
        ..LauncherConfig::new(args.router, claim_token, args.directory)
    };
    let ended = launcher::run(config, stop.clone()).await;
    if args.until_stopped {
        match &ended {
            Ok(end) => tracing::info!(?end, "the work is done"),
            Err(error) => tracing::error!(%error, "the launcher cannot go on"),
        }
        stop.cancelled().await;
    }
    match ended? {
        LauncherEnd::Closed | LauncherEnd::UsedUp => Ok(ExitCode::SUCCESS),
        LauncherEnd::Stopped => Ok(ExitCode::from(INTERRUPTED)),
    }
}

async fn run_shim(args: Exec) -> anyhow::Result<ExitCode> {
    shim::guard_this_process().context("cannot become the reaper of the agent's processes")?;
    let stop = stop_on_signal()?;
    if args.guarded || args.exit_with_stdin {
        stop_with_stdin(&stop);
    }
    let agent = match (args.function, args.python) {
        (Some(path), Some(python)) => Agent::Function(Function {
            path,
            python,
            code: args.code,
            parameters: args.parameters,
        }),
        _ => Agent::Command(args.command),
    };
    let config = ShimConfig {
        directory: args.directory,
        agent,
        environment: shim::clean_environment(
            std::env::vars_os(),
            args.inherit_environment,
            &args.environment,
        ),
        launcher_timeout: args.launcher_timeout_seconds,
        grace_period: args.grace_period_seconds,
        echo: !args.quiet,
    };
    shim::run(config, stop).await?;
    Ok(ExitCode::SUCCESS)
}

/// Cancels when standard input ends. A thread of its own, because a blocked read would hold the runtime at the end.
pub(super) fn stop_with_stdin(stop: &CancellationToken) {
    let stop = stop.clone();
    std::thread::spawn(move || wait_for_end(&mut std::io::stdin(), &stop));
}

/// A token that is cancelled by SIGTERM, SIGINT or SIGHUP.
pub(super) fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        let mut signals = signal(kind).context("cannot handle signals")?;
        let stop = stop.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "signals are listened for as long as the process lives"
        )]
        tokio::spawn(async move {
            signals.recv().await;
            stop.cancel();
        });
    }
    Ok(stop)
}

/// The claim token in a variable.
fn token_in(name: &str, value: Option<OsString>) -> anyhow::Result<String> {
    let value = value.with_context(|| {
        format!("the variable {name} is to be the pod's claim token; it is not set")
    })?;
    let token = value.to_str().map(str::trim).unwrap_or_default();
    if token.is_empty() {
        bail!("the variable {name} is to be the pod's claim token; it is empty or no text");
    }
    Ok(token.to_owned())
}

/// Reads the first line of standard input; then, if asked for, waits for its end and cancels.
///
/// A thread of its own, because a blocked read would hold the runtime at the end.
async fn read_token(stop: Option<CancellationToken>) -> anyhow::Result<String> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin());
        let mut line = String::new();
        let read = input
            .by_ref()
            .take(MAX_TOKEN)
            .read_line(&mut line)
            .map(|_| line);
        if sender.send(read).is_ok()
            && let Some(stop) = stop
        {
            wait_for_end(&mut input, &stop);
        }
    });
    let line = receiver
        .await
        .context("standard input is not read")?
        .context("cannot read standard input")?;
    let token = line.trim();
    if token.is_empty() {
        bail!("the first line of standard input is to be the pod's claim token; it is empty");
    }
    Ok(token.to_owned())
}

fn wait_for_end(input: &mut impl Read, stop: &CancellationToken) {
    let mut buffer = [0; 1024];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => break,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    stop.cancel();
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(value).map_err(|error| error.to_string())
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Args, token_in};

    #[derive(Debug, Parser)]
    struct Agent {
        #[command(flatten)]
        args: Args,
    }

    fn refused(arguments: &[&str]) -> String {
        let launch = ["agent", "launch", "--router=http://r", "--directory=/d"];
        let parsed = Agent::try_parse_from(launch.iter().chain(arguments));
        parsed
            .err()
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_launcher_gets_its_token_in_one_way() {
        assert_eq!(refused(&["--claim-token-stdin"]), "");
        assert_eq!(refused(&["--claim-token-env=TOKEN"]), "");
        assert!(refused(&[]).contains("--claim-token-stdin|--claim-token-env"));
        let both = refused(&["--claim-token-stdin", "--claim-token-env=TOKEN"]);
        assert!(both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn a_variable_without_a_token_is_named() {
        let token = |value: Option<&str>| token_in("TOKEN", value.map(Into::into));
        assert_eq!(token(Some(" job/0/1/c0ffee\n")).unwrap(), "job/0/1/c0ffee");
        for (value, problem) in [(None, "not set"), (Some(" "), "empty")] {
            let error = token(value).unwrap_err().to_string();
            assert!(
                error.contains("TOKEN") && error.contains(problem),
                "{error}"
            );
        }
    }
}
