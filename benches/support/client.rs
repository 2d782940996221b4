//! One HTTP/1.1 connection of a load generator: as little work per request as possible.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A connection, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

impl Connection {
    pub(crate) async fn open(url: &str) -> Self {
        let address: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        Self {
            sender,
            _driver: driver,
        }
    }

    /// Sends a request and reads the whole answer. An error means that the connection broke.
    pub(crate) async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Bytes,
    ) -> hyper::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "bench")
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await?;
        let response = self
            .sender
            .send_request(request.body(Full::new(body)).unwrap())
            .await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}
