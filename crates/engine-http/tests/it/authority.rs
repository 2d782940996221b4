//! A CA of the tests' own, and servers with its certificates.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A CA.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// When a certificate is valid.
#[derive(Clone, Copy)]
pub(crate) enum Valid {
    Now,
    Past,
    Future,
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn signs(&self, names: &[&str], valid: Valid) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = match valid {
            Valid::Now => (date_time_ymd(2020, 1, 1), date_time_ymd(4000, 1, 1)),
            Valid::Past => (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1)),
            Valid::Future => (date_time_ymd(3999, 1, 1), date_time_ymd(4000, 1, 1)),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity {
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }

    /// The CA itself, as a server.
    pub(crate) fn itself(&self) -> Identity {
        Identity {
            certificate: self.0.der().clone(),
            key: PrivatePkcs8KeyDer::from(self.0.key().serialize_der()).into(),
        }
    }
}

impl Identity {
    pub(crate) fn acceptor(self) -> TlsAcceptor {
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate], self.key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A server on a socket of this machine.
pub(crate) struct Server {
    pub(crate) port: u16,
    _serving: JoinSet<()>,
}

impl Server {
    /// Answers everything with the same bytes, once per connection.
    pub(crate) async fn answering(identity: Identity, answer: &'static str) -> Self {
        let acceptor = identity.acceptor();
        Self::of(move |socket| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut stream) = acceptor.accept(socket).await else {
                    return;
                };
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                }
            }
        })
        .await
    }

    /// Does this with every connection.
    pub(crate) async fn of<F>(serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::at("127.0.0.1:0", serve).await
    }

    /// The same at another address.
    pub(crate) async fn at<F>(
        address: &str,
        serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket));
            }
        });
        Self {
            port,
            _serving: serving,
        }
    }
}
