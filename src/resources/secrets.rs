//! Tokens of jobs and routers, derived and never stored by the controller.
//!
//! Each is an HMAC-SHA256 of the operator's own key over what it is for, so that the controller can make it again at any time and needs no
//! right to read a Secret.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::names::hex;

/// The operator's own key.
#[derive(Clone)]
pub struct OperatorKey(Vec<u8>);

impl std::fmt::Debug for OperatorKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OperatorKey")
    }
}

impl OperatorKey {
    /// A key of any length.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    fn derive(&self, purpose: &str) -> String {
        mac(&self.0, purpose)
    }
}

/// The secrets of one attempt of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct JobSecrets {
    /// Bearer of the router's control port and of the driver's.
    pub control_token: String,
    /// What claim tokens are derived from.
    pub claim_secret: String,
}

impl std::fmt::Debug for JobSecrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JobSecrets")
    }
}

impl JobSecrets {
    /// The secrets of an attempt: those of an earlier one open nothing.
    pub fn of(key: &OperatorKey, job_uid: &str, attempt: u32) -> Self {
        Self {
            control_token: key.derive(&format!("job/{job_uid}/{attempt}/control-token")),
            claim_secret: key.derive(&format!("job/{job_uid}/{attempt}/claim-secret")),
        }
    }

    /// The claim token of an agent Pod (docs/protocol.md section 2).
    pub fn claim_token(&self, job: &str, slot: u32, generation: u32) -> String {
        let holder = format!("{job}/{slot}/{generation}");
        let proof = mac(self.claim_secret.as_bytes(), &holder);
        format!("{holder}/{proof}")
    }
}

/// Bearer of the control port of a pool's router.
pub fn pool_control_token(key: &OperatorKey, pool_uid: &str) -> String {
    key.derive(&format!("pool/{pool_uid}/control-token"))
}

fn mac(key: &[u8], message: &str) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        // HMAC takes keys of any length.
        return String::new();
    };
    mac.update(message.as_bytes());
    hex(&mac.finalize().into_bytes(), usize::MAX)
}
