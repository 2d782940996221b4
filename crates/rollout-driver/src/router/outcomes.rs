//! The outcome feed: one long poll for all sessions of the job.
//!
//! Whoever creates a session waits at the feed. An outcome that arrives before anybody waits for it is kept until somebody does.
//! When the router's process changes, every session that is waited for is lost; when the router cannot be reached for longer
//! than the limit, too.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Outcome, OutcomePage, RouterClient};

/// Outcomes that nobody asked for are forgotten beyond this number: leftovers of an earlier process.
const UNCLAIMED: usize = 65_536;

/// How the wait for a session ended.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionEnd {
    /// The router knows.
    Outcome(Box<Outcome>),
    /// The session is gone with its router.
    Lost(&'static str),
}

#[derive(Debug)]
struct Waiter {
    /// The router's process that created the session, where it said so.
    instance: Option<String>,
    sender: oneshot::Sender<SessionEnd>,
}

#[derive(Debug, Default)]
struct Feed {
    instance: Option<String>,
    agents_loaded: Option<bool>,
    waiting: HashMap<String, Waiter>,
    arrived: HashMap<String, Outcome>,
    arrival_order: VecDeque<String>,
}

/// The feed of one job.
#[derive(Debug, Clone, Default)]
pub struct OutcomeFeed {
    feed: Arc<Mutex<Feed>>,
}

impl OutcomeFeed {
    /// A place to wait for the end of a session. `instance` is the router's process that created it.
    pub fn wait_for(
        &self,
        session: &str,
        instance: Option<String>,
    ) -> oneshot::Receiver<SessionEnd> {
        let (sender, receiver) = oneshot::channel();
        let mut feed = self.feed.lock();
        if let Some(outcome) = feed.arrived.remove(session) {
            tell(sender, SessionEnd::Outcome(Box::new(outcome)));
        } else {
            feed.waiting
                .insert(session.to_owned(), Waiter { instance, sender });
        }
        receiver
    }

    /// The router's process, as far as it is known.
    pub fn instance(&self) -> Option<String> {
        self.feed.lock().instance.clone()
    }

    /// The process that the router said it is; the feed learns the rest by itself.
    pub fn begin_with(&self, instance: String) {
        self.feed.lock().instance.get_or_insert(instance);
    }

    /// Whether an agent of the job has ever been loaded, when the router knows.
    pub fn agents_loaded(&self) -> Option<bool> {
        self.feed.lock().agents_loaded
    }

    /// Nobody waits for this session any more.
    pub fn forget(&self, session: &str) {
        let mut feed = self.feed.lock();
        feed.waiting.remove(session);
        feed.arrived.remove(session);
    }

    /// Polls until cancelled.
    pub async fn run(&self, router: &RouterClient, patience: Duration, stop: CancellationToken) {
        const WAIT: Duration = Duration::from_secs(20);
        const PAUSE: Duration = Duration::from_millis(200);
        let mut after = 0;
        let mut silent_since: Option<tokio::time::Instant> = None;
        loop {
            let page = tokio::select! {
                () = stop.cancelled() => return,
                page = router.outcomes(after, WAIT) => page,
            };
            match page {
                Ok(page) => {
                    silent_since = None;
                    after = self.take_in(page, after);
                }
                Err(error) => {
                    let since = *silent_since.get_or_insert_with(tokio::time::Instant::now);
                    tracing::warn!(%error, "no outcomes from the router");
                    if since.elapsed() > patience {
                        self.lose_all("router_unreachable");
                    }
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                }
            }
        }
    }

    /// Hands out a page; answers what to ask after next.
    pub(super) fn take_in(&self, page: OutcomePage, after: u64) -> u64 {
        let mut feed = self.feed.lock();
        let now = page.session_server_instance_id;
        let restarted = feed.instance.as_ref().is_some_and(|known| *known != now);
        let lost = feed.waiting.extract_if(|_, waiter| match &waiter.instance {
            Some(instance) => *instance != now,
            None => restarted,
        });
        for (_, waiter) in lost {
            tell(waiter.sender, SessionEnd::Lost("router_restarted"));
        }
        feed.instance = Some(now);
        // What was loaded before the router was started again has been loaded all the same.
        if feed.agents_loaded != Some(true) {
            feed.agents_loaded = page.agents_loaded;
        }
        if restarted {
            feed.arrived.clear();
            feed.arrival_order.clear();
            if after > 0 {
                // This page was asked for with the old process's number.
                return 0;
            }
        }
        for outcome in page.outcomes {
            feed.hand_out(outcome);
        }
        page.next
    }

    fn lose_all(&self, cause: &'static str) {
        for (_, waiter) in self.feed.lock().waiting.drain() {
            tell(waiter.sender, SessionEnd::Lost(cause));
        }
    }
}

/// Whoever waited may have gone: then nobody needs to know.
fn tell(sender: oneshot::Sender<SessionEnd>, end: SessionEnd) {
    drop(sender.send(end));
}

impl Feed {
    fn hand_out(&mut self, outcome: Outcome) {
        if let Some(waiter) = self.waiting.remove(&outcome.session_id) {
            tell(waiter.sender, SessionEnd::Outcome(Box::new(outcome)));
            return;
        }
        self.arrival_order.push_back(outcome.session_id.clone());
        self.arrived.insert(outcome.session_id.clone(), outcome);
        while self.arrival_order.len() > UNCLAIMED
            && let Some(oldest) = self.arrival_order.pop_front()
        {
            self.arrived.remove(&oldest);
        }
    }
}
