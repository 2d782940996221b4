//! `rollout-operator survey`: asks external engines with their key what they are and what they can do (docs/protocol.md section 7).
//!
//! Guarantees: key and CAs are read before every look, so that another one, or one that came late, needs no restart. What is told has no key
//! in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

use crate::controllers::pool::{Credentials, Surveyor};
use crate::resources::pool::EngineList;

/// How long answers may take to end after SIGTERM.
const LAST: Duration = Duration::from_secs(2);

/// Asks engines with their key what they are and what they can do, and tells it at `GET /survey`.
///
/// Prints one line of JSON, `{"url": "..."}`, once it listens.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Base URL of an engine. Can be given several times.
    #[arg(long = "engine", value_name = "URL", num_args = 1..)]
    engines: Vec<String>,
    /// Service behind which engines are: every address of the name is one.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "engines")]
    engine_service: Option<String>,
    /// File with the bearer token that the engines want.
    #[arg(long, value_name = "FILE")]
    engine_key_file: PathBuf,
    /// What people call that key [default: the file].
    #[arg(long, value_name = "WORDS")]
    engine_key_name: Option<String>,
    /// File with the CAs that may vouch for engines behind https, as PEM text [default: those that browsers trust].
    #[arg(long, value_name = "FILE")]
    engine_ca_file: Option<PathBuf>,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8092")]
    listen: SocketAddr,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = super::agent::stop_on_signal()?;
    let engines = match args.engine_service.clone() {
        Some(service) => EngineList::Service(service),
        None => EngineList::Urls(args.engines.clone()),
    };
    ensure!(
        engines != EngineList::Urls(Vec::new()),
        "there is no engine to ask: give --engine or --engine-service"
    );
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    super::data::line(json!({"url": format!("http://{}", listener.local_addr()?)}))?;
    let surveyor = Arc::new(Surveyor::new(engines, Box::new(move || credentials(&args))));
    let told = Arc::clone(&surveyor);
    let routes = Router::new()
        .route("/survey", get(move || async move { Json(told.survey()) }))
        .route("/health", get(|| async { "ok" }));
    let until = stop.clone();
    let serving = axum::serve(listener, routes)
        .with_graceful_shutdown(async move { until.cancelled().await });
    tokio::select! {
        served = serving.into_future() => served?,
        () = surveyor.run(|| true, || ()) => {}
        () = async { stop.cancelled().await; tokio::time::sleep(LAST).await } => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// What there is now, or what is missing: a file of a Secret that is not there is not there either.
fn credentials(args: &Args) -> Result<Credentials, String> {
    let file = &args.engine_key_file;
    let name = args.engine_key_name.clone();
    let name = name.unwrap_or_else(|| file.display().to_string());
    let key = std::fs::read_to_string(file)
        .map_err(|error| format!("the engines' key cannot be read: {name}: {}", kind(&error)))?;
    let key = key.trim().to_owned();
    if key.is_empty() {
        return Err(format!("the engines' key is empty: {name}"));
    }
    let ca = args.engine_ca_file.as_deref().map(read_ca).transpose()?;
    Ok(Credentials { key: Some(key), ca })
}

fn read_ca(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file)
        .map_err(|error| format!("the engines' CA cannot be read: {}", kind(&error)))
}

/// Without the number that the system puts behind it.
fn kind(error: &std::io::Error) -> String {
    error.kind().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Args, credentials};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_key_may_come_late_and_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let words = [
            "survey",
            "--engine=http://a:1",
            "--engine-key-file",
            &file.display().to_string(),
            "--engine-key-name=the Secret k, key key",
        ];
        let args = Line::try_parse_from(words).unwrap().args;
        let missing = credentials(&args).unwrap_err();
        assert_eq!(
            missing,
            "the engines' key cannot be read: the Secret k, key key: entity not found"
        );
        std::fs::write(&file, "\n").unwrap();
        let empty = credentials(&args).unwrap_err();
        assert_eq!(empty, "the engines' key is empty: the Secret k, key key");
        for key in ["one", "two"] {
            std::fs::write(&file, format!("{key}\n")).unwrap();
            assert_eq!(credentials(&args).unwrap().key.as_deref(), Some(key));
        }
    }
}
