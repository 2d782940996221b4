//! One run: starts everything in order, waits for the driver's verdict, ends everything in the reverse order.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Context;
use serde_json::Value;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::{Instant, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    agents::{self, RouterUrls},
    last_word::LastWord,
    log::Log,
    progress::{Display, Status, say},
    service::{Process, ServiceError, Spec, keep_running},
    setup::Setup,
    workdir::shown,
};

/// How often the driver's status is read.
const POLL: Duration = Duration::from_millis(300);

/// Restarts in a row that are forgiven to an engine, the router or the plug-in host.
const RESTARTS: u32 = 8;

/// How long a service may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// What ended the wait for the driver.
enum End {
    /// The driver's own word.
    Decided(Box<LastWord>),
    /// Somebody pressed Ctrl-C or sent SIGTERM.
    Interrupted,
    /// The job took longer than `activeDeadlineSeconds`.
    Deadline,
    /// The driver crashed more often than `backoffLimit` allows.
    Crashed(String),
}

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
    report(&setup, result?, display.notice())
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

/// Runs the driver, again after a crash, until it has decided or must not go on.
async fn drive(
    setup: &Setup,
    config: &Path,
    services: &mut Services,
    signals: &mut Signals,
    display: &mut Display,
) -> anyhow::Result<End> {
    let patience = Setup::driver_patience(config)?;
    let limits = Limits {
        deadline: setup
            .active_deadline
            .map(|limit| Instant::now() + limit + patience),
        patience,
    };
    let mut crashes = 0;
    loop {
        let spec = setup.driver_spec(config);
        let log = Log::of(&spec.log);
        let end = match Process::start(&spec).await {
            Ok(driver) => watch_driver(limits, driver, services, signals, display).await?,
            Err(ServiceError::Dies { status, .. }) => {
                DriverEnd::Crashed(format!("{status} before it listened"))
            }
            Err(error) => {
                let origin = setup.origin_of_rows(&error.to_string());
                return Err(match origin {
                    Some(origin) => anyhow::anyhow!("{error}; {origin}"),
                    None => error.into(),
                });
            }
        };
        match end {
            DriverEnd::Decided => return Ok(End::Decided(Box::new(setup.last_word()?))),
            DriverEnd::Interrupted => return Ok(End::Interrupted),
            DriverEnd::Deadline => return Ok(End::Deadline),
            DriverEnd::Crashed(status) => {
                crashes += 1;
                if crashes > setup.backoff_limit {
                    let times = format!("ended {crashes} times, at last with {status}");
                    return Ok(End::Crashed(log.ended(&times)));
                }
                let why = log.reason().map(|reason| format!(": {reason}"));
                display.say(&format!(
                    "the driver ended with {status} and is started again ({crashes} of {}){}",
                    setup.backoff_limit,
                    why.unwrap_or_default()
                ));
            }
        }
    }
}

/// Bounds on a driver.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// When a driver that did not see that the job's time is over, as it should by itself, is told to end.
    deadline: Option<Instant>,
    /// How long it may take to end once it was told to.
    patience: Duration,
}

enum DriverEnd {
    Decided,
    Interrupted,
    Deadline,
    Crashed(String),
}

async fn watch_driver(
    limits: Limits,
    mut driver: Process,
    services: &mut Services,
    signals: &mut Signals,
    display: &mut Display,
) -> anyhow::Result<DriverEnd> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(2))
        .build()?;
    let url = driver.announcement["status_url"]
        .as_str()
        .context("the driver did not say its status_url")?
        .to_owned();
    let mut ticks = interval(POLL);
    let far = Instant::now() + Duration::from_hours(365 * 24);
    loop {
        tokio::select! {
            status = driver.wait() => {
                let status = status?;
                return Ok(if status.success() { DriverEnd::Decided } else { DriverEnd::Crashed(status.to_string()) });
            }
            _ = ticks.tick() => {
                if let Some(status) = read_status(&client, &url).await {
                    display.show(&status);
                }
            }
            () = signals.next() => {
                display.say("interrupted: ending the sessions in order (once more to end at once)");
                return wind_down(limits.patience, driver, signals, &client, &url, display).await.map(|decided| {
                    if decided { DriverEnd::Decided } else { DriverEnd::Interrupted }
                });
            }
            () = sleep_until(limits.deadline.unwrap_or(far)) => {
                display.say("activeDeadlineSeconds is over: ending the sessions in order");
                wind_down(limits.patience, driver, signals, &client, &url, display).await?;
                return Ok(DriverEnd::Deadline);
            }
            error = failure(services) => {
                driver.stop(limits.patience).await;
                return Err(error);
            }
        }
    }
}

/// SIGTERM: the driver runs its teardown ladder. Answers whether it had decided by then.
async fn wind_down(
    patience: Duration,
    mut driver: Process,
    signals: &mut Signals,
    client: &reqwest::Client,
    url: &str,
    display: &mut Display,
) -> anyhow::Result<bool> {
    driver.terminate();
    let ended = timeout(patience, async {
        let mut ticks = interval(POLL);
        loop {
            tokio::select! {
                status = driver.wait() => break status.map(|status| status.success()),
                () = signals.next() => break Ok(false),
                _ = ticks.tick() => {
                    if let Some(status) = read_status(client, url).await {
                        display.show(&status);
                    }
                }
            }
        }
    })
    .await;
    driver.stop(Duration::ZERO).await;
    match ended {
        Ok(decided) => Ok(decided?),
        Err(_) => Ok(false),
    }
}

async fn read_status(client: &reqwest::Client, url: &str) -> Option<Status> {
    client
        .get(url)
        .send()
        .await
        .ok()?
        .error_for_status()
        .ok()?
        .json()
        .await
        .ok()
}

/// Ctrl-C, SIGTERM, and the end of the terminal.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

fn report(setup: &Setup, end: End, notice: Option<String>) -> anyhow::Result<ExitCode> {
    let output = shown(&setup.work.output);
    let earlier = match &end {
        End::Decided(word) => setup.earlier_word(word)?,
        _ => None,
    };
    let of_earlier = earlier.is_some().then(|| {
        format!(
            "this is the result of an earlier run in {output}; take another --output to run the job again, or remove {output}"
        )
    });
    let end = match earlier {
        Some(word) => End::Decided(Box::new(word)),
        None => end,
    };
    match end {
        End::Decided(word) if word.outcome.success => {
            if let Some(of_earlier) = of_earlier {
                say(&of_earlier);
            }
            say(&format!(
                "{}: {}",
                word.outcome.reason, word.outcome.message
            ));
            for line in word.summary(shown(&setup.work.output)) {
                say(&line);
            }
            Ok(ExitCode::SUCCESS)
        }
        End::Decided(word) => {
            let message = &word.outcome.message;
            let look = where_to_look(setup, of_earlier.or(notice), message);
            anyhow::bail!("{}: {message} ({look})", word.outcome.reason)
        }
        End::Deadline => {
            let message = "the job took longer than activeDeadlineSeconds";
            let look = where_to_look(setup, notice, message);
            anyhow::bail!("DeadlineExceeded: {message} ({look})")
        }
        End::Crashed(said) => anyhow::bail!("BackoffLimitExceeded: driver: {said}"),
        End::Interrupted => {
            say(&format!(
                "interrupted; the same command with --output {output} goes on from here"
            ));
            Ok(ExitCode::from(130))
        }
    }
}

/// What helps to understand a failure: sessions that waited in vain, what there is, and the logs of the user's own code.
fn where_to_look(setup: &Setup, notice: Option<String>, message: &str) -> String {
    let mut parts: Vec<String> = notice.into_iter().collect();
    parts.extend(setup.origin_of_rows(message));
    parts.push(format!("what was kept is in {}", shown(&setup.work.output)));
    let own_code = [
        (setup.pods.is_some(), "agents", "agent-*.log"),
        (setup.plugin_host().is_some(), "plug-ins", "plugins.log"),
    ];
    for (_, whose, log) in own_code.iter().filter(|(has_any, ..)| *has_any) {
        let path = setup.logs.join(log);
        parts.push(format!("the {whose} wrote to {}", shown(&path)));
    }
    parts.join("; ")
}
