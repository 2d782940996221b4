//! Tokens of one run: made at start, never written into a manifest, an argument or an environment.

use std::{fs, io, os::unix::fs::OpenOptionsExt, path::Path};

use rand::RngExt;
use rollout_router::Holder;

/// The secrets of a run.
#[derive(Clone)]
pub(super) struct Secrets {
    /// Bearer of the router's control port.
    pub(super) control_token: String,
    claim_secret: String,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secrets")
    }
}

impl Secrets {
    /// New random secrets.
    pub(super) fn generate() -> Self {
        Self {
            control_token: random_hex(),
            claim_secret: random_hex(),
        }
    }

    /// A random id for a job.
    pub(super) fn random_uid() -> String {
        let bytes: [u8; 16] = rand::rng().random();
        hex(&bytes)
    }

    /// Writes both into files that only this user can read. Answers nothing: the names are fixed, `control-token` and `claim-secret`.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        for (name, value) in [
            ("control-token", &self.control_token),
            ("claim-secret", &self.claim_secret),
        ] {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            io::Write::write_all(&mut file, value.as_bytes())?;
        }
        Ok(())
    }

    /// The claim token of one pod (docs/protocol.md section 2).
    pub(super) fn claim_token(&self, job: &str, slot: u32, generation: u32) -> String {
        Holder {
            job: job.to_owned(),
            slot: slot.to_string(),
            generation: generation.into(),
        }
        .token(&self.claim_secret)
    }
}

fn random_hex() -> String {
    let bytes: [u8; 32] = rand::rng().random();
    hex(&bytes)
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
