//! One HTTP/1.1 connection of a load generator: as little work per request as possible.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
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

    /// A call that has to succeed.
    pub(crate) async fn ok(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Bytes,
    ) -> Bytes {
        let (status, answer) = self.call(method, path, headers, body).await.unwrap();
        assert!(
            status.is_success(),
            "{method} {path}: {status} {}",
            String::from_utf8_lossy(&answer[..answer.len().min(400)])
        );
        answer
    }

    /// A call with a JSON body and answer that has to succeed.
    pub(crate) async fn json(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let body = match body {
            Value::Null => Bytes::new(),
            body => Bytes::from(body.to_string()),
        };
        let answer = self.ok(method, path, &[], body).await;
        serde_json::from_slice(&answer).unwrap_or(Value::Null)
    }
}
