//! The driver of a run: started, watched, started again after a crash, and told to end.

use std::{path::Path, time::Duration};

use anyhow::Context;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, interval, sleep_until, timeout},
};

use super::{
    super::{
        last_word::LastWord,
        log::Log,
        progress::{Display, Status},
        service::{Process, ServiceError},
        setup::Setup,
    },
    Services, failure,
};

/// How often the driver's status is read.
const POLL: Duration = Duration::from_millis(300);

/// What ended the wait for the driver.
pub(super) enum End {
    /// The driver's own word.
    Decided(Box<LastWord>),
    /// Somebody pressed Ctrl-C or sent SIGTERM.
    Interrupted,
    /// The job took longer than `activeDeadlineSeconds`.
    Deadline,
    /// The driver crashed more often than `backoffLimit` allows.
    Crashed(String),
}

/// Runs the driver, again after a crash, until it has decided or must not go on.
pub(super) async fn drive(
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
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
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
