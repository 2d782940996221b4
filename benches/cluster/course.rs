//! Statuses that a job had, from a watch: which writes told progress alone.

use std::sync::Arc;

use futures_util::StreamExt;
use kube::Client;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use rollout_operator::api::meta;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::plane;

/// What a status says of progress: it follows from how long a job takes.
const PROGRESS: [&str; 4] = ["progress", "display", "teardown", "recentFailures"];

/// A watch of one job until it is dropped.
pub(crate) struct Course {
    statuses: Arc<Mutex<Vec<Value>>>,
    _task: JoinSet<()>,
}

impl Course {
    pub(crate) fn of(client: &Client, namespace: &str, job: &str) -> Self {
        let config = watcher::Config::default().fields(&format!("metadata.name={job}"));
        let jobs = plane::objects(client, namespace, meta::JOB_KIND);
        let mut events = Box::pin(watcher(jobs, config));
        let statuses = Arc::new(Mutex::new(Vec::<Value>::new()));
        let seen = Arc::clone(&statuses);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(job) | Event::InitApply(job)) = event {
                    let status = job.data["status"].clone();
                    let mut seen = seen.lock();
                    if seen.last() != Some(&status) {
                        seen.push(status);
                    }
                }
            }
        });
        Self {
            statuses,
            _task: task,
        }
    }

    /// How many changes were of progress alone.
    pub(crate) fn of_progress(&self) -> usize {
        let statuses = self.statuses.lock();
        let pairs = statuses.windows(2);
        pairs
            .filter(|pair| rest(&pair[0]) == rest(&pair[1]))
            .count()
    }
}

fn rest(status: &Value) -> Value {
    let mut rest = status.clone();
    if let Some(members) = rest.as_object_mut() {
        members.retain(|name, _| !PROGRESS.contains(&name.as_str()));
    }
    rest
}
