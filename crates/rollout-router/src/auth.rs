//! Credentials. All comparisons take the same time, whatever is wrong.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::error::ApiError;
use crate::id::HexId;

type HmacSha256 = Hmac<Sha256>;

/// Whether two secrets are equal.
pub(crate) fn same_secret(left: &str, right: &str) -> bool {
    left.as_bytes().ct_eq(right.as_bytes()).into()
}

fn mac_hex(secret: &[u8], message: &str) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = HmacSha256::new_from_slice(secret) else {
        return String::new();
    };
    mac.update(message.as_bytes());
    let bytes = mac.finalize().into_bytes();
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    hex
}

/// A pod that holds sessions: the generation of a slot of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The job.
    pub job: String,
    /// The slot, which outlives pods.
    pub slot: String,
    /// Which pod of the slot.
    pub generation: u64,
}

impl Holder {
    /// Derives the claim token of a pod, as whoever starts pods does.
    pub fn token(&self, claim_secret: &str) -> String {
        let Self {
            job,
            slot,
            generation,
        } = self;
        let message = format!("{job}/{slot}/{generation}");
        let mac = mac_hex(claim_secret.as_bytes(), &message);
        format!("{message}/{mac}")
    }

    /// Reads and checks a claim token.
    pub(crate) fn of_token(
        claim_secret: Option<&str>,
        token: Option<&str>,
    ) -> Result<Self, ApiError> {
        const WRONG: ApiError = ApiError::Unauthorized("the claim token is missing or wrong");
        let Some(secret) = claim_secret else {
            return Err(ApiError::Forbidden(
                "this router was started without a claim secret".to_owned(),
            ));
        };
        let token = token.ok_or(WRONG)?;
        let mut parts = token.rsplitn(4, '/');
        let (Some(_), Some(generation), Some(slot), Some(job)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(WRONG);
        };
        let holder = Self {
            job: job.to_owned(),
            slot: slot.to_owned(),
            generation: generation.parse().map_err(|_| WRONG)?,
        };
        if same_secret(&holder.token(secret), token) {
            Ok(holder)
        } else {
            Err(WRONG)
        }
    }
}

/// The token of a session, derived from a secret of this process.
pub(crate) fn session_token(secret: &HexId, session: &HexId) -> String {
    mac_hex(secret.as_str().as_bytes(), session.as_str())
}

#[cfg(test)]
mod tests {
    use super::Holder;

    fn holder() -> Holder {
        Holder {
            job: "team/swe".to_owned(),
            slot: "3".to_owned(),
            generation: 7,
        }
    }

    #[test]
    fn a_pod_proves_who_it_is() {
        let token = holder().token("secret");
        let read = Holder::of_token(Some("secret"), Some(&token)).unwrap();
        assert_eq!(read, holder());
    }

    #[test]
    fn a_pod_cannot_pass_for_another_generation() {
        let token = holder().token("secret").replace("/7/", "/8/");
        assert!(Holder::of_token(Some("secret"), Some(&token)).is_err());
        assert!(Holder::of_token(Some("other"), Some(&holder().token("secret"))).is_err());
        assert!(Holder::of_token(Some("secret"), Some("swe/3/7")).is_err());
        assert!(Holder::of_token(Some("secret"), None).is_err());
        assert!(Holder::of_token(None, Some(&holder().token("secret"))).is_err());
    }
}
