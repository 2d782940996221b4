//! Makes connections.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::stream::{Kind, Stream};
use crate::trust::Trust;
use crate::words;

type TcpError = <HttpConnector as Service<Uri>>::Error;

/// No connection was made: nothing of a request was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens, or the host cannot be reached or found.
    #[error(transparent)]
    Tcp(TcpError),
    /// Somebody listens, but is no engine that is trusted; in words for people.
    #[error("{0}")]
    Tls(String),
    /// The handshake takes too long.
    #[error("does not finish the TLS handshake within {} s", .0.as_secs_f64())]
    Slow(Duration),
    /// The handshake was broken off, as by somebody who stops.
    #[error("ends the connection in the TLS handshake: does it speak TLS?")]
    HungUp(std::io::Error),
}

/// Makes connections to `http://` and `https://` addresses.
#[derive(Clone, Debug)]
pub struct Connector {
    tcp: HttpConnector,
    trust: Trust,
    limit: Duration,
}

impl Connector {
    /// Connections within `limit`; a handshake may take as long again.
    pub fn new(limit: Duration, trust: Trust) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(limit));
        tcp.enforce_http(false);
        Self { tcp, trust, limit }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.tcp.poll_ready(context).map_err(ConnectError::Tcp)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = (uri.scheme() == Some(&Scheme::HTTPS)).then(|| Handshake {
            host: uri.host().unwrap_or_default().to_owned(),
            trust: self.trust.clone(),
            limit: self.limit,
        });
        let connecting = self.tcp.call(uri);
        Box::pin(async move {
            let tcp = connecting.await.map_err(ConnectError::Tcp)?;
            match tls {
                None => Ok(Stream(Kind::Plain(tcp))),
                Some(handshake) => handshake.over(tcp).await,
            }
        })
    }
}

struct Handshake {
    host: String,
    trust: Trust,
    limit: Duration,
}

impl Handshake {
    async fn over(self, tcp: TokioIo<tokio::net::TcpStream>) -> Result<Stream, ConnectError> {
        let Self { host, trust, limit } = self;
        // An address of IPv6 is in brackets in a URL, and not in a certificate.
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| ConnectError::Tls(format!("{host} is no name of a host")))?;
        let config = trust.config().map_err(|error| {
            ConnectError::Tls(format!("the encryption cannot be set up: {error}"))
        })?;
        let connecting = TlsConnector::from(config).connect(name, tcp.into_inner());
        match tokio::time::timeout(limit, connecting).await {
            Err(_) => Err(ConnectError::Slow(limit)),
            Ok(Err(error)) => Err(match words::of_handshake(&error) {
                Some(words) => ConnectError::Tls(words),
                None => ConnectError::HungUp(error),
            }),
            Ok(Ok(stream)) => Ok(Stream(Kind::Encrypted(Box::new(TokioIo::new(stream))))),
        }
    }
}
