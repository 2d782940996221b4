//! One run: starts everything in order, waits for the driver's verdict, ends everything in the reverse order.

mod driving;
mod verdict;

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::driving::{End, Signals, drive};
use super::{
    agents::{self, RouterUrls},
    progress::{Display, say},
    service::{ServiceError, Spec, keep_running},
    setup::Setup,
};

/// Restarts in a row that are forgiven to an engine, the router or the plug-in host.
const RESTARTS: u32 = 8;

/// How long a service may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a prepared job to its end.
pub(super) async fn run(setup: Setup) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let cancel = CancellationToken::new();
    let mut services = JoinSet::new();
    let mut display = Display::new();
    let result = conduct(&setup, &mut services, &mut signals, &mut display, &cancel).await;
    cancel.cancel();
    display.finish();
    while let Some(ended) = services.join_next().await {
        match ended {
            Ok(Err(error)) if result.is_ok() => {
                tracing::debug!(%error, "a service failed after the job was over");
            }
            Ok(Err(error)) => say(&format!("error: {error}")),
            Ok(Ok(())) => {}
            Err(error) => tracing::warn!(%error, "a service's task failed"),
        }
    }
    verdict::tell(&setup, result?, display.notice())
}

type Services = JoinSet<Result<(), ServiceError>>;

async fn conduct(
    setup: &Setup,
    services: &mut Services,
    signals: &mut Signals,
    display: &mut Display,
    cancel: &CancellationToken,
) -> anyhow::Result<End> {
    let engines = start_engines(setup, services, cancel).await?;
    let router = start_router(setup, services, &engines, cancel).await?;
    if let Some(spec) = setup.plugin_host() {
        start(services, cancel, move |_| spec.clone()).await?;
    }
    let (notice, told) = watch::channel(None);
    display.listen(told);
    if let Some(pods) = setup.pods.clone() {
        let (router, control, cancel) = (router.clone(), setup.control(&router)?, cancel.clone());
        services.spawn(async move {
            agents::run(pods, router, control, notice, cancel).await;
            Ok(())
        });
    }
    let config = setup.write_driver_config(&router)?;
    drive(setup, &config, services, signals, display).await
}

/// Starts a service and waits until it has announced itself, or failed.
async fn start(
    services: &mut Services,
    cancel: &CancellationToken,
    spec: impl Fn(&Value) -> Spec + Send + Sync + 'static,
) -> anyhow::Result<Value> {
    let (announced, mut ready) = watch::channel(Value::Null);
    let waits = spec(&Value::Null).announces;
    services.spawn(keep_running(
        spec,
        RESTARTS,
        GRACE,
        announced,
        cancel.clone(),
    ));
    if !waits {
        return Ok(Value::Null);
    }
    tokio::select! {
        value = async { ready.wait_for(|value| !value.is_null()).await.map(|value| value.clone()) } => match value {
            Ok(value) => Ok(value),
            Err(_) => Err(failure(services).await),
        },
        error = failure(services) => Err(error),
    }
}

/// Waits for a service that failed.
async fn failure(services: &mut Services) -> anyhow::Error {
    while let Some(ended) = services.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(error) => return error.into(),
        }
    }
    std::future::pending().await
}

async fn start_engines(
    setup: &Setup,
    services: &mut Services,
    cancel: &CancellationToken,
) -> anyhow::Result<Vec<String>> {
    if !setup.engine_urls.is_empty() {
        return Ok(setup.engine_urls.clone());
    }
    let mut urls = Vec::new();
    for index in 0..setup.simulated_engines {
        let spec = setup.engine_spec(index)?;
        let announcement = start(services, cancel, spec).await?;
        let url = announcement["url"]
            .as_str()
            .context("a simulated engine did not say its url")?;
        urls.push(url.to_owned());
    }
    Ok(urls)
}

async fn start_router(
    setup: &Setup,
    services: &mut Services,
    engines: &[String],
    cancel: &CancellationToken,
) -> anyhow::Result<RouterUrls> {
    let announcement = start(services, cancel, setup.router_spec(engines)).await?;
    serde_json::from_value(announcement).context("the router did not say where it listens")
}
