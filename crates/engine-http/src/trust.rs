//! Whom a client believes to be an engine.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The CAs that may vouch for an engine. Clones are the same: what is renewed in one is so in all.
#[derive(Clone)]
pub struct Trust(Arc<RwLock<Setup>>);

type Setup = Result<Arc<ClientConfig>, Arc<rustls::Error>>;

/// A text that is no CA.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There is nothing in it.
    #[error(
        "there is no certificate in it: give PEM text, which begins with -----BEGIN CERTIFICATE-----"
    )]
    Empty,
    /// It is not PEM.
    #[error("certificate {position} is not PEM text: {problem}")]
    NotPem {
        /// Which one, counted from 1.
        position: usize,
        /// What is wrong.
        problem: String,
    },
    /// It is no certificate.
    #[error("certificate {position} cannot be used as a CA: {source}")]
    Unusable {
        /// Which one, counted from 1.
        position: usize,
        /// Why.
        source: rustls::Error,
    },
}

impl Trust {
    /// The CAs that browsers trust, as this program was built with them: an image without files has no others.
    pub fn public() -> Self {
        Self::of(setup(RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        }))
    }

    /// These CAs and no others: one or more certificates as PEM text.
    ///
    /// # Errors
    /// The text has no certificate, or one that cannot be used.
    pub fn only(pem: &str) -> Result<Self, TrustError> {
        Ok(Self::of(setup(roots(pem)?)))
    }

    /// These CAs and no others from the next connection on; connections that are there stay.
    ///
    /// # Errors
    /// The text has no certificate, or one that cannot be used: then everything stays as it is.
    pub fn renew(&self, pem: &str) -> Result<(), TrustError> {
        let setup = setup(roots(pem)?);
        *self.0.write() = setup;
        Ok(())
    }

    fn of(setup: Setup) -> Self {
        Self(Arc::new(RwLock::new(setup)))
    }

    pub(crate) fn config(&self) -> Setup {
        self.0.read().clone()
    }
}

fn roots(pem: &str) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(pem.as_bytes()).enumerate() {
        let position = index + 1;
        let certificate = certificate.map_err(|error| TrustError::NotPem {
            position,
            problem: error.to_string(),
        })?;
        roots
            .add(certificate)
            .map_err(|source| TrustError::Unusable { position, source })?;
    }
    if roots.is_empty() {
        return Err(TrustError::Empty);
    }
    Ok(roots)
}

fn setup(roots: RootCertStore) -> Setup {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider);
    let builder = versions.with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    Ok(Arc::new(builder.with_no_client_auth()))
}

impl fmt::Debug for Trust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Trust")
    }
}
