//! Identifiers.

use std::fmt;

use rand::RngExt;
use sha2::{Digest, Sha256};

/// 32 lower-case hexadecimal digits.
///
/// There is no `Display`: who writes an id says whether it is for the one who may have it ([`HexId::as_str`]) or for a log
/// ([`HexId::short`], and `Debug`).
///
/// A session's id names its owner in the first four digits and is a capability by the other 28 (112 random bits). Request ids have
/// the same length, because SGLang matches the id of an abort by prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HexId([u8; 32]);

impl HexId {
    /// A random id.
    pub fn random() -> Self {
        let mut bytes = [0u8; 16];
        rand::rng().fill(&mut bytes);
        Self::of_bytes(bytes)
    }

    /// A random id that starts with the first four digits of `owner`.
    pub fn owned_by(owner: &Self) -> Self {
        let mut id = Self::random();
        id.0[..4].copy_from_slice(&owner.0[..4]);
        id
    }

    /// The id of a text: the same text has the same one everywhere. It is no secret.
    pub(crate) fn of_text(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let mut bytes = [0u8; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self::of_bytes(bytes)
    }

    fn of_bytes(bytes: [u8; 16]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0u8; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(hex)
    }

    /// Reads an id; `None` when it is not 32 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let hex: [u8; 32] = text.as_bytes().try_into().ok()?;
        hex.iter()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
            .then_some(Self(hex))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The first digits, for logs.
    pub fn short(&self) -> &str {
        rollout_session::short_id(self.as_str())
    }
}

impl fmt::Debug for HexId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.short())
    }
}

impl serde::Serialize for HexId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
