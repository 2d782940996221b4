//! The command line: one file per sub-command. Standard output is data, standard error is talk.

mod agent;
mod controller;
mod crds;
mod data;
mod driver;
mod engine_ca;
mod engine_sidecar;
mod guard;
mod key;
mod local;
mod logging;
mod plugins;
mod printable;
mod resolvers;
mod router;
mod samples;
mod simulate_engine;
mod survey;
mod template;
mod validate;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// RL rollouts as Kubernetes objects.
#[derive(Debug, Parser)]
#[command(name = "rollout-operator", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the controller of pools and jobs in a cluster.
    Controller(controller::Args),
    /// Runs one `RolloutJob` on this machine, from the same manifests that `kubectl apply` takes.
    Local(local::Args),
    /// Checks manifests offline with the rules of the custom resource definitions.
    Validate(validate::Args),
    /// Prints the custom resource definitions, or writes them to a directory.
    Crds(crds::Args),
    /// Shows and checks training samples.
    Samples(samples::Args),
    /// Finds out what a chat template does.
    Template(template::Args),
    /// Runs a simulated SGLang engine.
    SimulateEngine(simulate_engine::Args),
    /// Runs the session router in front of the engines of one pool.
    Router(router::Args),
    /// Runs the driver of one job.
    Driver(driver::Args),
    /// Runs the launcher or the shim of an agent pod, or installs this program there.
    Agent(agent::Args),
    /// Runs beside an engine: its state, its drain, its tokenizer's files.
    EngineSidecar(engine_sidecar::Args),
    /// Asks external engines with their key what they are and what they can do.
    Survey(survey::Args),
    /// Makes the operator's own key in a Secret, once; runs before the controller.
    Key(key::Args),
    /// Runs the Python plug-in host beside the driver.
    Plugins(plugins::Args),
}

impl Command {
    /// Servers tell what they do; commands for people only what is wrong.
    fn log_level(&self) -> &'static str {
        match self {
            Self::Local(_)
            | Self::Validate(_)
            | Self::Crds(_)
            | Self::Samples(_)
            | Self::Template(_) => "warn",
            // The client logs every answer of 500, which is told by whoever asked.
            Self::Controller(_) => "info,kube_client::client::builder=off",
            Self::SimulateEngine(_)
            | Self::Router(_)
            | Self::Driver(_)
            | Self::Agent(_)
            | Self::EngineSidecar(_)
            | Self::Survey(_)
            | Self::Key(_)
            | Self::Plugins(_) => "info",
        }
    }
}

/// The command line with all its sub-commands and flags, for whoever checks what is written about it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the command line and runs the sub-command. Errors go to standard error, with their causes.
pub async fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::init(cli.command.log_level());
    let result = match cli.command {
        Command::Controller(args) => Box::pin(controller::run(args)).await,
        Command::Local(args) => Box::pin(local::run(args)).await,
        Command::Validate(args) => validate::run(args).await,
        Command::Crds(args) => crds::run(args).await,
        Command::Samples(args) => samples::run(args).await,
        Command::Template(args) => template::run(args).await,
        Command::SimulateEngine(args) => simulate_engine::run(args).await,
        Command::Router(args) => router::run(args).await,
        Command::Driver(args) => driver::run(args).await,
        Command::Agent(args) => agent::run(args).await,
        Command::EngineSidecar(args) => engine_sidecar::run(args).await,
        Command::Survey(args) => survey::run(args).await,
        Command::Key(args) => key::run(args).await,
        Command::Plugins(args) => plugins::run(args).await,
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the one place where an error reaches the person"
)]
fn report(error: &anyhow::Error) {
    let error = format!("{error:#}");
    eprintln!("error: {}", printable::printable(&error));
}
