//! The controller: a process beside the control plane, as leader, for the whole cluster.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::plane::{logs, until};
use crate::process::{self, Cpu, Process};

/// Kinds of what it reconciles, as its metrics name them.
pub(crate) const POOL: &str = "SGLangPool";
pub(crate) const JOB: &str = "RolloutJob";

pub(crate) struct Controller {
    process: Process,
    http: reqwest::Client,
    url: String,
    _home: TempDir,
}

impl Controller {
    /// Starts one. It says at its default log level what it does, into the cluster's logs.
    pub(crate) fn start() -> Self {
        let home = TempDir::new().unwrap();
        let key = home.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        let log = File::options()
            .create(true)
            .append(true)
            .open(logs().join("controller.log"))
            .unwrap();
        let mut command = process::operator(&[
            "controller",
            "--image=localhost/rollout-operator:dev",
            "--listen=127.0.0.1:0",
            "--leader-elect",
            "--lease-namespace=default",
            "--key-file",
            key.to_str().unwrap(),
        ]);
        if let Ok(workers) = std::env::var("BENCH_CONCURRENCY") {
            command.args(["--concurrency", &workers]);
        }
        command.env_remove("ROLLOUT_LOG").stderr(log);
        let process = Process::announcing(command);
        let url = process.url("url");
        Self {
            process,
            http: reqwest::Client::new(),
            url,
            _home: home,
        }
    }

    /// Starts one, and waits until it leads.
    pub(crate) async fn leading() -> Self {
        let controller = Self::start();
        until("the controller leads", async || {
            controller.figures().await.leads()
        })
        .await;
        controller
    }

    /// Its metrics.
    pub(crate) async fn figures(&self) -> Figures {
        let answer = self.http.get(format!("{}/metrics", self.url)).send().await;
        let page = answer.unwrap().text().await.unwrap();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        Figures(
            lines
                .filter_map(|line| {
                    let (name, value) = line.rsplit_once(' ')?;
                    Some((name.to_owned(), value.parse().ok()?))
                })
                .collect(),
        )
    }

    pub(crate) fn cpu(&self) -> Cpu {
        self.process.cpu()
    }

    /// Resident memory now and at its highest, in MiB.
    pub(crate) fn mebibytes(&self) -> (f64, f64) {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.process.pid())).unwrap();
        let pages: u32 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
        // Pages of 4 KiB.
        (
            f64::from(pages) / 256.0,
            self.process.peak_mebibytes().unwrap(),
        )
    }

    /// Sends a signal, and waits for the end of the process.
    pub(crate) async fn end(self, signal: Signal) {
        let pid = i32::try_from(self.process.pid()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        until("the controller ends", async || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('Z')
        })
        .await;
    }

    /// Waits until so many jobs and pools were looked at and nothing waits; answers how long that took since a moment.
    pub(crate) async fn all_reconciled(
        &self,
        jobs: usize,
        pools: usize,
        since: Instant,
    ) -> Duration {
        until("everything is reconciled", async || {
            let figures = self.figures().await;
            figures.reconciles(JOB) >= jobs && figures.reconciles(POOL) >= pools && figures.idle()
        })
        .await;
        since.elapsed()
    }
}

/// Metrics of a moment, by name with labels.
pub(crate) struct Figures(BTreeMap<String, f64>);

impl Figures {
    fn sum(&self, name: &str, label: &str) -> f64 {
        let named = self.0.iter().filter(|(full, _)| {
            full.split_once('{').map_or(full.as_str(), |(name, _)| name) == name
        });
        named
            .filter(|(full, _)| full.contains(label))
            .map(|(_, value)| value)
            .sum()
    }

    pub(crate) fn leads(&self) -> bool {
        self.sum("rollout_operator_leader", "") > 0.0
    }

    /// Whether nothing waits and nothing runs.
    pub(crate) fn idle(&self) -> bool {
        let waiting = self.sum("rollout_operator_queue_length", "");
        waiting + self.sum("rollout_operator_reconciles_running", "") < 0.5
    }

    pub(crate) fn reconciles(&self, kind: &str) -> usize {
        whole(self.sum(
            "rollout_operator_reconciles_total",
            &format!("kind=\"{kind}\""),
        ))
    }

    pub(crate) fn failed_reconciles(&self) -> usize {
        whole(self.sum("rollout_operator_reconcile_errors_total", ""))
    }

    /// Calls to the API server.
    pub(crate) fn calls(&self, verb: &str) -> usize {
        whole(self.sum(
            "rollout_operator_api_requests_total",
            &format!("verb=\"{verb}\""),
        ))
    }

    /// Durations of a kind's reconciles since another moment.
    pub(crate) fn durations(&self, kind: &str, before: &Self) -> Durations {
        let label = format!("kind=\"{kind}\"");
        let buckets = self.0.iter().filter_map(|(name, value)| {
            let rest = name.strip_prefix("rollout_operator_reconcile_duration_seconds_bucket{")?;
            let (_, bound) = rest.split_once("le=\"")?;
            let bound = bound.split('"').next()?;
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            let then = before.0.get(name).copied().unwrap_or(0.0);
            name.contains(&label).then_some((bound, value - then))
        });
        let mut buckets: Vec<(f64, f64)> = buckets.collect();
        buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
        Durations(buckets)
    }
}

/// A histogram: upper bounds in seconds, and how many took no longer.
pub(crate) struct Durations(Vec<(f64, f64)>);

impl Durations {
    pub(crate) fn all(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, count)| *count)
    }

    /// The bound that `percent` of them did not exceed, in milliseconds.
    pub(crate) fn at_most(&self, percent: f64) -> f64 {
        let wanted = self.all() * percent / 100.0;
        let found = self.0.iter().find(|(_, count)| *count >= wanted);
        found.map_or(f64::INFINITY, |(bound, _)| bound * 1000.0)
    }

    /// How many of a hundred took no longer than a bound of the histogram, in seconds.
    pub(crate) fn percent_within(&self, seconds: f64) -> f64 {
        let within = self.0.iter().rfind(|(bound, _)| *bound <= seconds * 1.001);
        within.map_or(0.0, |(_, count)| count / self.all() * 100.0)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counters"
)]
fn whole(value: f64) -> usize {
    value.round() as usize
}
