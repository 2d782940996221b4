//! What a soak did, and what it cost: a table for people, from the jobs' statuses. Nothing is asserted here.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::processes::Kind;

/// Between two looks at how jobs get on.
const LOOK: Duration = Duration::from_millis(500);

/// Looks at the groups that jobs keep, until it is dropped. The API server is killed too, so that a look may fail.
pub(super) struct Pace {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

struct Seen {
    kept: BTreeMap<String, i64>,
    since: Instant,
    longest: Duration,
}

impl Pace {
    pub(super) fn watch(jobs: Api<DynamicObject>) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            kept: BTreeMap::new(),
            since: Instant::now(),
            longest: Duration::ZERO,
        }));
        let mut tasks = JoinSet::new();
        let watched = Arc::clone(&seen);
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                if let Ok(list) = jobs.list(&ListParams::default()).await {
                    watched.lock().look(&list.items);
                }
            }
        });
        Self { seen, _task: tasks }
    }

    /// Ends it; answers the longest time in which no job told of another group that it kept.
    pub(super) fn end(self) -> Duration {
        self.seen.lock().longest
    }
}

impl Seen {
    fn look(&mut self, jobs: &[DynamicObject]) {
        let mut moved = false;
        for job in jobs {
            let groups = &job.data["status"]["progress"]["groups"];
            let kept = groups["kept"].as_i64().unwrap_or(0);
            let before = self.kept.entry(job.name_any()).or_default();
            moved |= kept > *before;
            *before = kept.max(*before);
        }
        let now = Instant::now();
        self.longest = self.longest.max(now - self.since);
        if moved {
            self.since = now;
        }
    }
}

/// The sums over all jobs.
#[derive(Default)]
pub(super) struct Table {
    seed: u64,
    pub(super) kills: BTreeMap<Kind, usize>,
    /// From the first kill to the last.
    pub(super) killing: Duration,
    /// From the last kill to the end of the last job.
    pub(super) settling: Duration,
    /// The longest time in which no job told of another group that it kept.
    pub(super) pause: Duration,
    jobs: usize,
    attempts: i64,
    samples: i64,
    run_again: i64,
    failures: BTreeMap<String, i64>,
}

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, status: &Value) {
        self.jobs += 1;
        self.attempts += status["attempt"].as_i64().unwrap_or(0);
        self.samples += status["output"]["samples"].as_i64().unwrap_or(0);
        self.run_again += status["progress"]["sessions"]["infraFailed"]
            .as_i64()
            .unwrap_or(0);
        for failure in status["recentFailures"].as_array().into_iter().flatten() {
            let reason = failure["reason"].as_str().unwrap_or_default();
            *self.failures.entry(reason.to_owned()).or_default() +=
                failure["count"].as_i64().unwrap_or(0);
        }
    }

    /// As Markdown; for a soak that has ended well, with nothing left.
    pub(super) fn text(&self) -> String {
        let seconds = |time: Duration| format!("{:.0} s", time.as_secs_f64());
        let total: usize = self.kills.values().sum();
        let failures: Vec<_> = self
            .failures
            .iter()
            .map(|(reason, count)| format!("`{reason}` {count}"))
            .collect();
        let rows = [
            (
                "kills, seed",
                format!("{total} in {}, seed {}", seconds(self.killing), self.seed),
            ),
            ("jobs, all complete", self.jobs.to_string()),
            ("attempts (drivers' Pods)", self.attempts.to_string()),
            ("samples in files, verified", self.samples.to_string()),
            ("samples run again", self.run_again.to_string()),
            ("failures that jobs tell", failures.join(", ")),
            (
                "longest time without another kept group",
                seconds(self.pause),
            ),
            (
                "from the last kill to the end of the last job",
                seconds(self.settling),
            ),
            (
                "left: Pods but drivers', objects, requests, processes",
                "0".to_owned(),
            ),
        ];
        let mut text = String::from("| killed | times |\n|---|---|\n");
        for (kind, times) in &self.kills {
            let _ = writeln!(text, "| {} | {times} |", kind.word());
        }
        text += "\n| | |\n|---|---|\n";
        for (what, value) in rows {
            let _ = writeln!(text, "| {what} | {value} |");
        }
        text
    }
}
