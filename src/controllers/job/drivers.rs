//! Asks drivers how they are, and tells them which agents' Pods ended (docs/protocol.md section 5).
//!
//! One task per driver, every two seconds, with a deadline per call: never on a reconcile's path. What it learned is read without waiting;
//! a change puts the job into the queue. Caveat: what was told is remembered by this process alone; telling again is safe.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{ETAG, HeaderValue, IF_NONE_MATCH};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::plan::job::{Holder, PodEnd, Report};
use crate::resources::job::STATUS_PORT;

/// Between two questions.
const PERIOD: Duration = Duration::from_secs(2);
/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const LONGEST: usize = 1 << 20;

/// The drivers that are asked, by the UID of their Pod.
pub struct Drivers {
    client: reqwest::Client,
    asked: Mutex<HashMap<String, Asked>>,
}

struct Asked {
    known: Arc<Known>,
    /// Its task, which ends with the entry.
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Known {
    report: Mutex<Option<Report>>,
    told: Mutex<BTreeSet<Holder>>,
    retired: Mutex<BTreeSet<Holder>>,
    /// Of which Pods how many may go.
    to_retire: Mutex<(Vec<Holder>, usize)>,
    to_tell: Mutex<BTreeMap<Holder, PodEnd>>,
    news: Notify,
}

/// What is known by a driver.
#[derive(Default)]
pub(super) struct Heard {
    /// What it said last.
    pub(super) report: Option<Report>,
    /// Ends that it was told of.
    pub(super) told: BTreeSet<Holder>,
    /// Pods that get no session any more.
    pub(super) retired: BTreeSet<Holder>,
}

/// What a driver is asked with.
pub(super) struct Driver {
    /// UID of its Pod.
    pub(super) uid: String,
    /// Its address.
    pub(super) address: String,
    /// Bearer of its control port.
    pub(super) token: String,
}

impl Drivers {
    /// None yet. Asking ends with the value.
    ///
    /// # Errors
    /// No HTTP client can be made.
    pub fn new() -> reqwest::Result<Self> {
        Ok(Self {
            client: reqwest::Client::builder()
                .no_proxy()
                .timeout(LIMIT)
                .redirect(reqwest::redirect::Policy::none())
                .build()?,
            asked: Mutex::default(),
        })
    }

    /// Asks a driver from now on. `changed` is called after each change.
    pub(super) fn ask(&self, driver: Driver, changed: impl Fn() + Send + 'static) {
        let mut asked = self.asked.lock();
        if asked.contains_key(&driver.uid) {
            return;
        }
        let known = Arc::<Known>::default();
        let uid = driver.uid.clone();
        let task = Task {
            client: self.client.clone(),
            url: base(&driver.address),
            token: driver.token,
            known: Arc::clone(&known),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(changed));
        let entry = Asked {
            known,
            _task: tasks,
        };
        asked.insert(uid, entry);
    }

    /// What a driver said last, and about which Pods it was told.
    pub(super) fn known(&self, uid: &str) -> Heard {
        let asked = self.asked.lock();
        let Some(Asked { known, .. }) = asked.get(uid) else {
            return Heard::default();
        };
        Heard {
            report: known.report.lock().clone(),
            told: known.told.lock().clone(),
            retired: known.retired.lock().clone(),
        }
    }

    /// Lets Pods go that are idle, in this order, until so many have gone.
    pub(super) fn retire(&self, uid: &str, pods: (Vec<Holder>, usize)) {
        if let Some(asked) = self.asked.lock().get(uid)
            && pods.1 > 0
        {
            *asked.known.to_retire.lock() = pods;
            asked.known.news.notify_one();
        }
    }

    /// Tells a driver which Pods ended.
    pub(super) fn tell(&self, uid: &str, ends: BTreeMap<Holder, PodEnd>) {
        if let Some(asked) = self.asked.lock().get(uid)
            && !ends.is_empty()
        {
            asked.known.to_tell.lock().extend(ends);
            asked.known.news.notify_one();
        }
    }

    /// Asks a driver no more.
    pub(super) fn forget(&self, uid: &str) {
        self.asked.lock().remove(uid);
    }
}

struct Task {
    client: reqwest::Client,
    url: String,
    token: String,
    known: Arc<Known>,
}

impl Task {
    async fn run(self, changed: impl Fn() + Send + 'static) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tag = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.known.news.notified() => {}
            }
            let taken = self.tell().await | self.retire().await;
            if self.ask(&mut tag).await || taken {
                changed();
            }
        }
    }

    /// Tells what ended; answers whether the driver took any of it.
    async fn tell(&self) -> bool {
        let ends: Vec<_> = self.known.to_tell.lock().clone().into_iter().collect();
        let mut taken = false;
        for (holder, end) in ends {
            let mut body = json!({"slot": holder.0, "generation": holder.1, "reason": end.reason});
            if let Some(word) = end.cause.word() {
                body["cause"] = json!(word);
            }
            if self.pod_ended(holder, &body).await.is_none() {
                return taken;
            }
            self.known.to_tell.lock().remove(&holder);
            self.known.told.lock().insert(holder);
            taken = true;
        }
        taken
    }

    /// Asks whether Pods may go; answers whether one may.
    async fn retire(&self) -> bool {
        let (pods, most) = std::mem::take(&mut *self.known.to_retire.lock());
        let mut gone = 0;
        for holder in pods {
            if gone == most {
                break;
            }
            let body = json!({"slot": holder.0, "generation": holder.1, "reason": "more pods than are needed", "only_idle": true});
            let Some(answer) = self.pod_ended(holder, &body).await else {
                break;
            };
            if answer["busy"] == false {
                self.known.retired.lock().insert(holder);
                gone += 1;
            }
        }
        gone > 0
    }

    async fn pod_ended(&self, holder: Holder, body: &Value) -> Option<Value> {
        let request = self.client.post(format!("{}/pod-ended", self.url));
        match request.bearer_auth(&self.token).json(body).send().await {
            Ok(answer) if answer.status().is_success() => {
                Some(read(answer).await.unwrap_or_default())
            }
            Ok(answer) => {
                tracing::warn!(?holder, status = %answer.status(), "a driver did not take the end of a pod");
                None
            }
            Err(error) => {
                tracing::debug!(?holder, %error, "a driver was not told of the end of a pod");
                None
            }
        }
    }

    /// Asks; answers whether something is new.
    async fn ask(&self, tag: &mut Option<HeaderValue>) -> bool {
        let mut request = self.client.get(format!("{}/status", self.url));
        if let Some(tag) = tag.as_ref() {
            request = request.header(IF_NONE_MATCH, tag);
        }
        let answer = match request.send().await {
            Ok(answer) if answer.status() == StatusCode::OK => answer,
            Ok(_) => return false,
            Err(error) => {
                tracing::debug!(url = self.url, %error, "a driver does not answer");
                return false;
            }
        };
        let new_tag = answer.headers().get(ETAG).cloned();
        let Some(status) = read(answer).await else {
            return false;
        };
        *tag = new_tag;
        let report = Report::read(&status);
        let mut known = self.known.report.lock();
        if known.as_ref() == Some(&report) {
            return false;
        }
        *known = Some(report);
        true
    }
}

async fn read(mut answer: reqwest::Response) -> Option<Value> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > LONGEST {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
}

fn base(address: &str) -> String {
    if address.contains(':') {
        format!("http://[{address}]:{STATUS_PORT}")
    } else {
        format!("http://{address}:{STATUS_PORT}")
    }
}
