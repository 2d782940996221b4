//! What a failed handshake means, in words that a person can act on. Stable: they are in a status, which must not change with every try.

use std::io;

use rustls::{CertificateError, Error, InvalidMessage, PeerIncompatible};

/// What is said of a certificate whose CA is not among the trusted: who knows how a CA is named can say more.
pub const UNKNOWN_CA: &str =
    "its certificate is from a CA that is not trusted: name the CA that signed it";

/// Names of a certificate that a text has.
const MOST_NAMES: usize = 4;

/// Why a handshake failed; none: the connection ended.
pub(crate) fn of_handshake(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<Error>().map(of_error)
}

fn of_error(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge,
        ) => "does not speak TLS: if it speaks plain HTTP, write http://".to_owned(),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "speaks no TLS newer than 1.1: 1.2 or 1.3 is needed".to_owned(),
        Error::AlertReceived(alert) => {
            format!("refuses the TLS handshake: alert {alert:?}")
        }
        other => format!("the TLS handshake failed: {other}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: renew it".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: look at its dates, and at the clocks".to_owned()
        }
        CertificateError::NotValidForName => {
            "its certificate is for another name: use the name that it has".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            format!(
                "its certificate is not for {expected} but for {}: use a name that it has",
                names(presented)
            )
        }
        CertificateError::UnknownIssuer => UNKNOWN_CA.to_owned(),
        CertificateError::BadSignature => {
            "its certificate is not signed by the CA of that name that is trusted: was the CA made anew?"
                .to_owned()
        }
        CertificateError::Revoked => "its certificate has been revoked".to_owned(),
        CertificateError::BadEncoding => "its certificate cannot be read".to_owned(),
        // rustls has no variant of its own for these.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of a CA: give it one that a CA has signed".to_owned()
        }
        other => format!("its certificate is not accepted: {other}"),
    }
}

/// As rustls has them: `DnsName("engine.example")`.
fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "nobody".to_owned();
    }
    let plain = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, rest)| rest);
        inner.trim_end_matches(')').trim_matches('"').to_owned()
    };
    let mut named: Vec<_> = presented.iter().take(MOST_NAMES).map(plain).collect();
    if presented.len() > MOST_NAMES {
        named.push(format!("{} more", presented.len() - MOST_NAMES));
    }
    named.join(", ")
}
