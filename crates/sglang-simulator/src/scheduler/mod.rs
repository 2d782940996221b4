//! The continuous-batching scheduler: which request gets its next token when.
//!
//! **Purpose**: the part of an engine that decides latency: a waiting queue, a running batch, prefill before decode, steps that
//! slow down with the batch, a prefix cache in the same memory, retraction when the memory is full, pause and abort.
//!
//! **Inputs** are calls with the simulated time. **Outputs** are [`Event`]s from [`Scheduler::advance`]. No clock, no task, no lock.
//!
//! **Guarantees**: the same calls give the same events. All requests of a batch advance together, so a stretch of steps in which
//! nothing joins or leaves is one computation: the cost is per request, not per token (streamed requests apart).
//!
//! **Caveats**: prefill and decode alternate as in SGLang without mixed chunks; memory is counted in tokens with a page size of 1;
//! the prompt that is being prefilled occupies no memory before it is done.

mod admission;
mod advance;
mod load;
mod pause;
mod prefix_cache;
mod queue;
mod request;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

pub use load::Load;
pub use request::{Ending, Job, Outcome, Times, VersionSpan};

use prefix_cache::PrefixCache;
use queue::Queue;
use request::{Request, Stage};

/// Simulated nanoseconds since the start.
pub type Nanos = u64;

/// Names a request inside the scheduler.
pub type Key = u64;

/// Speeds and capacities of the simulated engine. All are at least 1, but for `max_queued` (0: no limit) and `slowdown_percent`.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Prompt tokens per second that prefill computes.
    pub prefill_tokens_per_second: u32,
    /// Decode steps per second of a batch of one.
    pub decode_tokens_per_second: u32,
    /// How much longer every further running request makes a step, in percent of the step of one.
    pub slowdown_percent: u32,
    /// Largest running batch.
    pub max_running: usize,
    /// Largest waiting queue; 0 is no limit.
    pub max_queued: usize,
    /// Memory for keys and values, in tokens.
    pub kv_tokens: usize,
    /// Most uncached prompt tokens in one prefill batch, unless a single prompt is longer.
    pub max_prefill_tokens: usize,
}

/// How generation is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Running requests stay where they are and keep their memory.
    InPlace,
    /// Running requests go back to the waiting queue, and their memory is freed.
    Retract,
}

/// What happened to a request.
#[derive(Debug)]
pub enum Event {
    /// A streamed request has this many tokens now.
    Progress {
        /// The request.
        key: Key,
        /// Tokens so far.
        generated: usize,
        /// What is known of it so far.
        times: Times,
    },
    /// A request ended.
    Finished {
        /// The request.
        key: Key,
        /// How.
        outcome: Box<Outcome>,
    },
}

/// The scheduler. See the module's documentation.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    version: Arc<str>,
    requests: HashMap<Key, Request>,
    waiting: Queue,
    running: usize,
    /// Running requests by the step after which they end; entries of requests that left or moved are skipped.
    finishing: BinaryHeap<Reverse<(u64, Key)>>,
    streams: BTreeSet<Key>,
    cache: PrefixCache,
    /// Generated tokens of running requests, which the cache does not hold.
    private_tokens: usize,
    phase: Phase,
    steps: u64,
    paused: Option<Pause>,
    /// After a retraction nobody is admitted before somebody finishes, else the two would alternate.
    admission_hold: bool,
    statistics: load::Statistics,
    events: Vec<Event>,
}

#[derive(Debug, Clone)]
enum Phase {
    Idle,
    Prefill {
        batch: Vec<Key>,
        until: Nanos,
    },
    Decode {
        start: Nanos,
        step: Nanos,
        done: u64,
        target: u64,
    },
}

impl Scheduler {
    /// An idle scheduler with an empty cache.
    pub fn new(limits: Limits, version: Arc<str>) -> Self {
        Self {
            limits,
            version,
            requests: HashMap::new(),
            waiting: Queue::default(),
            running: 0,
            finishing: BinaryHeap::new(),
            streams: BTreeSet::new(),
            cache: PrefixCache::default(),
            private_tokens: 0,
            phase: Phase::Idle,
            steps: 0,
            paused: None,
            admission_hold: false,
            statistics: load::Statistics::default(),
            events: Vec::new(),
        }
    }

    /// Whether one more request would exceed the waiting queue.
    pub fn is_queue_full(&self) -> bool {
        self.limits.max_queued > 0 && self.waiting.len() >= self.limits.max_queued
    }

    /// Puts a request into the waiting queue at `now`.
    pub fn submit(&mut self, job: Job, now: Nanos) {
        self.settle(now);
        let key = job.key;
        let uncached = job.prompt.len() - self.cache.peek(&job.prompt);
        let place = self.waiting.push_back(key);
        self.requests
            .insert(key, Request::new(job, uncached, place, now));
        self.interrupt(now);
    }

    /// Ends a request: at once when it waits, after one more step when it runs (after the pause, when paused).
    /// Answers whether the request is known.
    pub fn abort(&mut self, key: Key, now: Nanos) -> bool {
        self.settle(now);
        let Some(request) = self.requests.get_mut(&key) else {
            return false;
        };
        match request.stage {
            Stage::Waiting => {
                self.waiting.remove(request.place);
                self.finish(key, Ending::AbortedWaiting, now);
            }
            Stage::Prefilling => request.aborting = true,
            Stage::Running => {
                request.aborting = true;
                request.finish_step = self.steps + 1;
                self.finishing.push(Reverse((request.finish_step, key)));
                self.interrupt(now);
            }
        }
        true
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Empties the prefix cache, if no request holds a part of it: nothing runs, and nothing waits unless generation is paused.
    pub fn flush(&mut self, now: Nanos) -> bool {
        self.settle(now);
        let busy = self.running > 0
            || matches!(self.phase, Phase::Prefill { .. })
            || (!self.waiting.is_empty() && self.paused.is_none());
        if busy {
            return false;
        }
        self.cache = PrefixCache::default();
        true
    }

    /// The version that tokens are generated under from `now` on.
    pub fn set_version(&mut self, version: Arc<str>, now: Nanos) {
        self.settle(now);
        for request in self.requests.values_mut() {
            request.change_version(&version, self.steps);
        }
        self.version = version;
    }

    /// The version in force.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// When [`Scheduler::advance`] has something to do next, if time alone can bring it about.
    pub fn next_wake(&self) -> Option<Nanos> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Prefill { until, .. } => Some(*until),
            Phase::Decode {
                start,
                step,
                done,
                target,
            } => {
                let steps = if self.streams.is_empty() {
                    *target
                } else {
                    done + 1
                };
                Some(start + step * steps)
            }
        }
    }

    /// Everything that happened up to `now`, in order.
    pub fn advance(&mut self, now: Nanos) -> Vec<Event> {
        self.settle(now);
        self.report_progress();
        std::mem::take(&mut self.events)
    }

    fn report_progress(&mut self) {
        for key in &self.streams {
            let Some(request) = self.requests.get_mut(key) else {
                continue;
            };
            let generated = request.generated(self.steps);
            if generated > request.reported {
                request.reported = generated;
                let times = request.times();
                self.events.push(Event::Progress {
                    key: *key,
                    generated,
                    times,
                });
            }
        }
    }

    /// Takes a request out, hands its tokens to the cache, and reports its end.
    fn finish(&mut self, key: Key, ending: Ending, at: Nanos) {
        let Some(mut request) = self.requests.remove(&key) else {
            return;
        };
        let generated = request.generated(self.steps);
        if request.stage == Stage::Running {
            self.running -= 1;
            self.private_tokens -= generated;
            self.admission_hold = false;
            if let Some(node) = request.node {
                // the last token was sampled, but never computed
                let computed = request
                    .job
                    .output
                    .tokens(generated.saturating_sub(1))
                    .to_vec();
                self.cache.insert(node, &computed);
                self.cache.unlock(node);
            }
        }
        self.streams.remove(&key);
        self.make_room();
        request.begin_version(&self.version);
        let outcome = request.into_outcome(ending, generated, at);
        self.events.push(Event::Finished {
            key,
            outcome: Box::new(outcome),
        });
    }

    fn make_room(&mut self) {
        let used = self.cache.tokens() + self.private_tokens;
        self.cache.evict(used.saturating_sub(self.limits.kv_tokens));
    }
}
