//! When an object that failed is tried again: later each time, never all at once, at once again after a success or an edit (P6, P7).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::controllers::Class;

/// The first wait.
const FIRST: Duration = Duration::from_millis(500);
/// The longest wait.
const LONGEST: Duration = Duration::from_mins(5);
/// The wait after a conflict, which is no failure of anybody.
const CONFLICT: Duration = Duration::from_millis(200);
/// The longest wait after conflicts in a row.
const LONGEST_CONFLICT: Duration = Duration::from_secs(30);

/// Objects that failed, by UID.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: Mutex<HashMap<String, Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    in_a_row: u32,
    /// Of the spec that failed.
    generation: i64,
    until: Instant,
}

/// Whether an object may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Now.
    Open,
    /// Not before this time has passed, whatever events say.
    Wait(Duration),
}

impl Backoff {
    /// Whether an object is due. An edit opens the gate.
    pub fn gate(&self, uid: &str, generation: i64, now: Instant) -> Gate {
        match self.failures.lock().get(uid) {
            Some(failures) if failures.generation == generation && failures.until > now => {
                Gate::Wait(failures.until - now)
            }
            _ => Gate::Open,
        }
    }

    /// Notes a failure. Answers when the object is tried again by itself; none: when something changes, such as its spec.
    pub fn failed(
        &self,
        uid: &str,
        generation: i64,
        class: Class,
        now: Instant,
    ) -> Option<Duration> {
        let mut failures = self.failures.lock();
        let before = failures
            .get(uid)
            .filter(|before| before.generation == generation);
        let in_a_row = before.map_or(0, |before| before.in_a_row).saturating_add(1);
        let wait = delay(class, in_a_row, uid);
        let entry = Failures {
            in_a_row,
            generation,
            until: now + wait,
        };
        failures.insert(uid.to_owned(), entry);
        (!class.needs_an_edit()).then_some(wait)
    }

    /// Notes a success, or that the object is gone.
    pub fn forget(&self, uid: &str) {
        self.failures.lock().remove(uid);
    }

    /// How many objects failed when they were last tried.
    pub fn failing(&self) -> usize {
        self.failures.lock().len()
    }
}

/// The wait after so many failures in a row.
fn delay(class: Class, in_a_row: u32, uid: &str) -> Duration {
    let (first, longest) = match class {
        Class::Conflict => (CONFLICT, LONGEST_CONFLICT),
        _ => (FIRST, LONGEST),
    };
    let doublings = in_a_row.saturating_sub(1).min(16);
    let plain = first.saturating_mul(1 << doublings).min(longest);
    jitter(plain, uid, in_a_row)
}

/// Within a fifth, up or down; the same for the same object and turn, so that tests and restarts are repeatable.
pub fn jitter(plain: Duration, uid: &str, turn: u32) -> Duration {
    let digest = Sha256::new()
        .chain_update(uid)
        .chain_update(turn.to_le_bytes())
        .finalize();
    let fraction = f64::from(u16::from_le_bytes([digest[0], digest[1]])) / f64::from(u16::MAX);
    plain.mul_f64(0.8 + 0.4 * fraction)
}
