//! What objects are called.
//!
//! Every name is a DNS label, so that it can be a host name and the value of a label, however long its owner's name is: one that would be
//! longer than 63 characters is cut and gets a hash of what it was cut from. Pods have slot and generation, or the attempt, in their name: a
//! second start is a conflict.

use sha2::{Digest, Sha256};

/// Longest DNS label.
pub const MAX_LENGTH: usize = 63;

/// Digits of the hash in a name that was cut.
const HASH: usize = 8;

/// The Deployment, the policy and the budget of a pool's engines.
pub fn engine(pool: &str) -> String {
    fit(pool, "-engine")
}

/// The headless Service that lists a pool's engines.
pub fn engines(pool: &str) -> String {
    fit(pool, "-engines")
}

/// The account of a pool's Pods.
pub fn account(pool: &str) -> String {
    fit(pool, "-pool")
}

/// The settings of a pool's simulated engines.
pub fn simulator(pool: &str) -> String {
    fit(pool, "-simulator")
}

/// The Deployment that asks a pool's external engines with their key.
pub fn survey(pool: &str) -> String {
    fit(pool, "-survey")
}

/// Deployment and Service of a pool's router.
pub fn router(pool: &str) -> String {
    fit(pool, "-router")
}

/// The Service of a job's router. Not `-router`: a pool and a job may have the same name, and the job's own pool does.
pub fn sessions(job: &str) -> String {
    fit(job, "-sessions")
}

/// The Secret of a job.
pub fn secret(job: &str) -> String {
    fit(job, "-rollout")
}

/// The policy of a job's driver.
pub fn driver_policy(job: &str) -> String {
    fit(job, "-driver")
}

/// The policy of a job's agents.
pub fn agent_policy(job: &str) -> String {
    fit(job, "-agent")
}

/// The volume of a job's ledger.
pub fn ledger(job: &str) -> String {
    fit(job, "-ledger")
}

/// The driver Pod of an attempt, and its settings.
pub fn driver(job: &str, attempt: u32) -> String {
    fit(job, &format!("-driver-{attempt}"))
}

/// An agent Pod.
pub fn agent(job: &str, slot: u32, generation: u32) -> String {
    fit(job, &format!("-agent-{slot}-{generation}"))
}

fn fit(owner: &str, suffix: &str) -> String {
    if owner.len() + suffix.len() <= MAX_LENGTH {
        return format!("{owner}{suffix}");
    }
    let hash = hex(&Sha256::digest(owner.as_bytes()), HASH);
    let room = MAX_LENGTH.saturating_sub(suffix.len() + HASH + 1);
    let kept: String = owner.chars().take(room).collect();
    format!("{}-{hash}{suffix}", kept.trim_end_matches('-'))
}

/// The first digits of bytes in lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8], digits: usize) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .take(digits)
        .collect()
}
