//! Agent pods as child processes: what the controller does on a cluster.
//!
//! A pod is two processes, as in a real agent pod: the launcher, which holds the pod's claim token, and the shim, which runs the
//! user's code. Pods are numbered by slot and generation; as many run as the router's demand asks for.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    secrets::Secrets,
    service::{Process, Spec},
};

/// How often the demand is read.
const POLL: Duration = Duration::from_millis(200);

/// How long a launcher may take to end after its shim, and the other way round.
const GRACE: Duration = Duration::from_secs(15);

/// A pod that ends sooner than this without having worked is started again only after a pause.
const TOO_SHORT: Duration = Duration::from_secs(2);

/// What all pods of a job share.
#[derive(Debug, Clone)]
pub(super) struct Pods {
    /// This program.
    pub(super) program: PathBuf,
    /// Name of the job.
    pub(super) job: String,
    /// Most pods at once.
    pub(super) slots: u32,
    /// Sessions that one pod runs at once.
    pub(super) concurrent: u32,
    /// Sessions that one pod runs in all; 0: no limit.
    pub(super) sessions_per_pod: u32,
    /// Directory under which each pod has its own.
    pub(super) directory: PathBuf,
    /// Directory of the logs.
    pub(super) logs: PathBuf,
    /// What the shim runs: its arguments after `agent exec --directory DIR`.
    pub(super) agent: Vec<String>,
    /// Secrets of this run.
    pub(super) secrets: Secrets,
}

/// Where the router listens.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RouterUrls {
    pub(super) agents_url: String,
    pub(super) control_url: String,
}

#[derive(Debug, Deserialize)]
struct Demand {
    waiting: u32,
    assigned: u32,
}

/// Starts and ends pods until `cancel`.
pub(super) async fn run(pods: Pods, router: RouterUrls, cancel: CancellationToken) {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(5))
        .build()
        .unwrap_or_default();
    let mut running = JoinSet::new();
    let mut slots: Vec<Slot> = (0..pods.slots)
        .map(|number| Slot {
            number,
            generation: 0,
            busy: false,
            failures: 0,
        })
        .collect();
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Ok((number, worked)) = ended
                    && let Some(slot) = slots.iter_mut().find(|slot| slot.number == number)
                {
                    slot.ended(worked);
                }
            }
            _ = ticks.tick() => {
                let Some(demand) = read_demand(&client, &router, &pods).await else { continue };
                let busy = u32::try_from(slots.iter().filter(|slot| slot.busy).count()).unwrap_or(u32::MAX);
                let missing = pods_wanted(&demand, pods.concurrent).min(pods.slots).saturating_sub(busy);
                for slot in slots.iter_mut().filter(|slot| !slot.busy).take(missing as usize) {
                    slot.busy = true;
                    slot.generation += 1;
                    let pause = slot.pause();
                    running.spawn(pod(pods.clone(), router.agents_url.clone(), slot.number, slot.generation, pause, cancel.clone()));
                }
            }
        }
    }
    while running.join_next().await.is_some() {}
}

struct Slot {
    number: u32,
    generation: u32,
    busy: bool,
    failures: u32,
}

impl Slot {
    fn ended(&mut self, worked: bool) {
        self.busy = false;
        self.failures = if worked { 0 } else { self.failures + 1 };
    }

    fn pause(&self) -> Duration {
        if self.failures == 0 {
            Duration::ZERO
        } else {
            Duration::from_millis(250 << self.failures.min(5))
        }
    }
}

/// Pods that the demand asks for.
fn pods_wanted(demand: &Demand, concurrent: u32) -> u32 {
    (demand.waiting + demand.assigned).div_ceil(concurrent.max(1))
}

async fn read_demand(client: &reqwest::Client, router: &RouterUrls, pods: &Pods) -> Option<Demand> {
    let url = format!("{}/demand", router.control_url);
    let request = client
        .get(url)
        .query(&[("job", &pods.job)])
        .bearer_auth(&pods.secrets.control_token);
    match request.send().await {
        Ok(response) => response.error_for_status().ok()?.json().await.ok(),
        Err(error) => {
            tracing::debug!(%error, "the router did not tell its demand");
            None
        }
    }
}

/// Runs one pod to its end. Answers its slot and whether it ran long enough to count as having worked.
async fn pod(
    pods: Pods,
    router: String,
    slot: u32,
    generation: u32,
    pause: Duration,
    cancel: CancellationToken,
) -> (u32, bool) {
    tokio::select! {
        () = cancel.cancelled() => return (slot, true),
        () = tokio::time::sleep(pause) => {}
    }
    let started = tokio::time::Instant::now();
    if let Err(error) = run_pod(&pods, &router, slot, generation, &cancel).await {
        tracing::warn!(
            slot,
            generation,
            error = format!("{error:#}"),
            "an agent pod failed"
        );
    }
    (slot, started.elapsed() > TOO_SHORT)
}

async fn run_pod(
    pods: &Pods,
    router: &str,
    slot: u32,
    generation: u32,
    cancel: &CancellationToken,
) -> anyhow::Result<()> {
    let name = format!("agent-{slot}-{generation}");
    let directory = pods.directory.join(&name);
    tokio::fs::create_dir_all(&directory).await?;
    let directory_text = directory.display().to_string();
    let log = pods.logs.join(format!("agent-{slot}.log"));
    let mut launcher_args: Vec<String> = [
        "agent",
        "launch",
        "--exit-with-stdin",
        "--claim-token-stdin",
    ]
    .map(str::to_owned)
    .to_vec();
    launcher_args.extend([
        "--router".to_owned(),
        router.to_owned(),
        "--directory".to_owned(),
        directory_text.clone(),
    ]);
    launcher_args.extend(["--concurrent".to_owned(), pods.concurrent.to_string()]);
    launcher_args.extend([
        "--sessions-per-pod".to_owned(),
        pods.sessions_per_pod.to_string(),
    ]);
    let mut launcher = Process::start(&Spec {
        name: format!("{name} launcher"),
        program: pods.program.clone(),
        args: launcher_args,
        first_line: Some(pods.secrets.claim_token(&pods.job, slot, generation)),
        log: log.clone(),
        announces: false,
    })
    .await?;
    let mut shim_args: Vec<String> = ["agent", "exec", "--exit-with-stdin", "--directory"]
        .map(str::to_owned)
        .to_vec();
    shim_args.push(directory_text);
    shim_args.extend(pods.agent.iter().cloned());
    let shim = Process::start(&Spec {
        name: format!("{name} shim"),
        program: pods.program.clone(),
        args: shim_args,
        first_line: None,
        log,
        announces: false,
    })
    .await;
    let mut shim = match shim {
        Ok(shim) => shim,
        Err(error) => {
            launcher.stop(GRACE).await;
            return Err(error.into());
        }
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        _ = launcher.wait() => {}
        _ = shim.wait() => {}
    }
    launcher.terminate();
    tokio::join!(launcher.stop(GRACE), shim.stop(GRACE));
    tokio::fs::remove_dir_all(&directory).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pods_as_sessions_need() {
        let demand = Demand {
            waiting: 3,
            assigned: 6,
        };
        assert_eq!(pods_wanted(&demand, 1), 9);
        assert_eq!(pods_wanted(&demand, 4), 3);
        assert_eq!(
            pods_wanted(
                &Demand {
                    waiting: 0,
                    assigned: 0
                },
                4
            ),
            0
        );
    }
}
