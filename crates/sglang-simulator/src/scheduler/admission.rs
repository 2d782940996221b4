//! From the waiting queue into the running batch, and back when the memory is full.

use std::cmp::Reverse;

use super::request::Stage;
use super::{Ending, Key, Nanos, Phase, Scheduler};

impl Scheduler {
    /// Takes what fits from the front of the queue, and starts its prefill. First come, first served: a request that does not
    /// fit holds back those behind it.
    pub(super) fn start_prefill(&mut self, now: Nanos) -> bool {
        if self.admission_hold && self.running > 0 {
            return false;
        }
        let mut batch = Vec::new();
        let mut uncached_total = 0;
        while let Some(key) = self.waiting.front() {
            if self.running + batch.len() >= self.limits.max_running {
                break;
            }
            let Some(uncached) = self.try_admit(key, now, uncached_total, batch.is_empty()) else {
                break;
            };
            self.waiting.pop_front();
            uncached_total += uncached;
            batch.push(key);
        }
        if batch.is_empty() {
            return false;
        }
        let busy = prefill_time(uncached_total, self.limits.prefill_tokens_per_second);
        self.statistics.prefilled(uncached_total, busy);
        self.phase = Phase::Prefill {
            batch,
            until: now + busy,
        };
        true
    }

    /// Locks the cached part of the prompt and answers the uncached rest, if there is room for it.
    fn try_admit(&mut self, key: Key, now: Nanos, ahead: usize, first: bool) -> Option<usize> {
        let request = self.requests.get_mut(&key)?;
        let (cached, node) = self.cache.find(&request.job.prompt, request.job.cacheable);
        let uncached = request.job.prompt.len() + request.base - cached;
        if !first && ahead + uncached > self.limits.max_prefill_tokens {
            return None;
        }
        self.cache.lock(node);
        // every running request needs a place for its next token
        let needed =
            self.cache.protected() + self.private_tokens + ahead + uncached + self.running + 1;
        let alone = first && self.running == 0;
        if needed > self.limits.kv_tokens && !alone {
            self.cache.unlock(node);
            return None;
        }
        request.node = Some(node);
        request.start_prefill(cached, now);
        self.statistics.looked_up(cached, request.job.prompt.len());
        Some(uncached)
    }

    /// The batch has its prompts computed and one token each: it joins the running requests.
    pub(super) fn end_prefill(&mut self, batch: &[Key], now: Nanos) {
        for key in batch {
            self.join(*key, now);
        }
        self.make_room();
    }

    fn join(&mut self, key: Key, now: Nanos) {
        let Some(request) = self.requests.get_mut(&key) else {
            return;
        };
        if let Some(found) = request.node {
            let node = self.cache.insert_prompt(&request.job.prompt);
            self.cache.lock(node);
            self.cache.unlock(found);
            request.node = Some(node);
        }
        request.end_prefill(now);
        request.begin_version(&self.version);
        request.stage = Stage::Running;
        request.joined_step = self.steps;
        let length = request.job.output.length();
        if request.base < length {
            request.base += 1;
        }
        self.running += 1;
        self.private_tokens += request.base;
        if request.job.streaming {
            self.streams.insert(key);
        }
        let left = length.saturating_sub(request.base) as u64;
        request.finish_step = self.steps + left;
        if request.aborting {
            self.finish(key, Ending::Aborted, now);
        } else if left == 0 {
            self.finish(key, Ending::Complete, now);
        } else {
            self.finishing.push(Reverse((request.finish_step, key)));
        }
    }

    /// Frees memory for the next step: the running request with the fewest tokens goes back to the front of the queue. The last
    /// one is never retracted.
    pub(super) fn retract_one(&mut self, now: Nanos) {
        let steps = self.steps;
        let victim = self
            .requests
            .iter()
            .filter(|(_, request)| request.stage == Stage::Running && !request.aborting)
            .min_by_key(|(key, request)| (request.generated(steps), Reverse(**key)))
            .map(|(key, _)| *key);
        if let Some(key) = victim {
            self.requeue_running(key, now);
            self.admission_hold = true;
        }
    }

    /// A running request goes to the front of the queue; its memory is freed, its tokens are kept.
    pub(super) fn requeue_running(&mut self, key: Key, now: Nanos) {
        let Some(request) = self.requests.get_mut(&key) else {
            return;
        };
        self.private_tokens -= request.generated(self.steps);
        self.running -= 1;
        self.streams.remove(&key);
        if let Some(node) = request.node {
            self.cache.unlock(node);
        }
        request.requeue(self.waiting.push_front(key), true, self.steps, now);
    }

    /// A prefill that a pause cut off: its requests go to the front of the queue, in their order.
    pub(super) fn requeue_prefill(&mut self, batch: &[Key], now: Nanos) {
        for key in batch.iter().rev() {
            let Some(request) = self.requests.get_mut(key) else {
                continue;
            };
            if let Some(node) = request.node {
                self.cache.unlock(node);
            }
            request.requeue(self.waiting.push_front(*key), false, self.steps, now);
        }
    }
}

fn prefill_time(tokens: usize, per_second: u32) -> Nanos {
    (tokens as u64 * 1_000_000_000)
        .div_ceil(u64::from(per_second.max(1)))
        .max(1)
}
