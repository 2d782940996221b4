//! `rollout-operator engine-sidecar`: what runs beside an engine in its pod.
//!
//! ```text
//!   kubelet (preStop) --GET /drain----------> sidecar --GET /v1/loads-----------> engine
//!   kubelet (start) ---GET /started--------->    |  --POST /update_weights_from_disk-->
//!   routers ----------GET /state------------>    |  --GET /ping /ready /model_info-->
//!   drivers, routers -GET /tokenizer/<file>-->   |  --> the model's directory
//! ```
//!
//! Guarantees: everything that the engine is asked has a deadline, and `/health` is asked of an engine that begins only: on a paused one it fails
//! and marks the engine as broken. A drain ends within its time. Of the model's directory only the files of a tokenizer are served,
//! each with its digest. An engine that begins again is not called started before it has the checkpoint that was loaded into it, or into the
//! other engines of its pool, last.
//!
//! Caveats: anybody who reaches the port can start a drain; it says so in `/state` until the sidecar starts again. A checkpoint is noticed
//! within two seconds.

mod drain;
mod engine;
mod keeper;
mod server;
mod tokenizer;
mod weights;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;
use tokio::net::TcpListener;

use engine::Engine;
use keeper::Keeping;
use server::Sidecar;
use tokenizer::{ModelPlace, Place};

/// How long answers may take to end after SIGTERM.
const LAST: Duration = Duration::from_secs(5);

/// How long an engine that begins waits for the word of the others.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs beside an engine: its state, its drain before the pod ends, and its tokenizer's files.
///
/// Prints one line of JSON, `{"url": "..."}`, once it listens.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The engine's base URL.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:30000")]
    engine: String,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:30001")]
    listen: SocketAddr,
    /// How long a drain waits for the engine's requests to end.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = super::agent::seconds)]
    drain_seconds: Duration,
    /// How long an engine that drains has to be without a request: routers learn only after a while that it leaves.
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = super::agent::seconds)]
    settle_seconds: Duration,
    /// Variable with the bearer token that the engine wants.
    #[arg(long, value_name = "NAME")]
    engine_key_env: Option<String>,
    /// Directory of the model, whose tokenizer files are served.
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,
    /// Cache of a model hub, whose tokenizer files of `--hub-model` are served once they are there.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "model_dir",
        requires = "hub_model"
    )]
    hub_cache: Option<PathBuf>,
    /// The model in that cache, as in `Qwen/Qwen3-8B`.
    #[arg(long, value_name = "MODEL", requires = "hub_cache")]
    hub_model: Option<String>,
    /// Branch, tag or commit of that model.
    #[arg(long, value_name = "REVISION", default_value = "main")]
    hub_revision: String,
    /// The engine's own chat template, served in place of the model's.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Directory that outlives the engine's container: there it is noted which checkpoint was loaded into the engine, and an engine that begins
    /// again loads it before `/started` says that it may work.
    #[arg(long, value_name = "DIR")]
    weights_dir: Option<PathBuf>,
    /// The sidecars of the pool's other engines, all addresses of a name: an engine that begins loads the latest checkpoint of theirs too.
    #[arg(long, value_name = "HOST:PORT", requires = "weights_dir")]
    peers: Option<String>,
    /// How long an engine may load a checkpoint.
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = super::agent::seconds)]
    load_seconds: Duration,
    /// Also end when standard input closes: then whoever started this is gone.
    #[arg(long)]
    exit_with_stdin: bool,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = super::agent::stop_on_signal()?;
    if args.exit_with_stdin {
        super::agent::stop_with_stdin(&stop);
    }
    let key = args.engine_key_env.as_deref().map(key_in).transpose()?;
    let sidecar = Sidecar::new(
        Engine::new(&args.engine, key).context("cannot make an HTTP client")?,
        drain::Times {
            limit: args.drain_seconds,
            settle: args.settle_seconds,
        },
        place(&args),
        Keeping {
            directory: args.weights_dir.clone(),
            peers: args.peers.clone(),
            limit: args.load_seconds,
            patience: PATIENCE,
        },
    );
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    super::data::line(json!({"url": format!("http://{}", listener.local_addr()?)}))?;
    let until = stop.clone();
    let watched = Arc::clone(&sidecar);
    let serving = axum::serve(listener, sidecar.routes())
        .with_graceful_shutdown(async move { until.cancelled().await });
    tokio::select! {
        served = serving.into_future() => served?,
        () = watched.watch() => {}
        () = async { stop.cancelled().await; tokio::time::sleep(LAST).await } => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn place(args: &Args) -> Place {
    let model = match (&args.model_dir, &args.hub_cache, &args.hub_model) {
        (Some(directory), ..) => ModelPlace::Directory(directory.clone()),
        (None, Some(cache), Some(model)) => ModelPlace::HubCache {
            cache: cache.clone(),
            model: model.clone(),
            revision: args.hub_revision.clone(),
        },
        _ => ModelPlace::Nowhere,
    };
    Place {
        model,
        chat_template: args.chat_template.clone(),
    }
}

fn key_in(name: &str) -> anyhow::Result<String> {
    let key =
        std::env::var(name).with_context(|| format!("the engine's key in the variable {name}"))?;
    ensure!(
        !key.trim().is_empty(),
        "the variable {name} is to be the engine's key; it is empty"
    );
    Ok(key.trim().to_owned())
}

#[cfg(test)]
mod tests;
