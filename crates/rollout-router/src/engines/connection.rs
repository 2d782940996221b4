//! Connections that remember whether they have carried an answer.
//!
//! A server may close an idle connection in the moment in which a request is written to it. Only a connection that was used before can
//! have been idle; a fresh one that closes means that the engine broke off.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Extensions, Response, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Error;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower::Service;

/// Whether a connection has carried an answer.
#[derive(Debug, Clone, Default)]
struct Used(Arc<AtomicBool>);

/// Notes that the connection of an answer is a used one from now on.
pub(super) fn note_used<B>(response: &Response<B>) {
    if let Some(Used(used)) = response.extensions().get::<Used>() {
        used.store(true, Ordering::Relaxed);
    }
}

/// Whether a request failed on a connection that had been used before.
pub(super) fn failed_on_used(error: &Error) -> bool {
    let mut extras = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    extras
        .get::<Used>()
        .is_some_and(|Used(used)| used.load(Ordering::Relaxed))
}

/// Makes such connections.
#[derive(Debug, Clone)]
pub(super) struct Connector(pub(super) engine_http::Connector);

type ConnectFuture<E> = Pin<Box<dyn Future<Output = Result<Stream, E>> + Send>>;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = engine_http::ConnectError;
    type Future = ConnectFuture<Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            Ok(Stream {
                io: connecting.await?,
                used: Used::default(),
            })
        })
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    io: engine_http::Stream,
    used: Used,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.used.clone())
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}
