//! A connection to an engine.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A connection, plain or encrypted.
#[derive(Debug)]
pub struct Stream(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Plain(TokioIo<TcpStream>),
    // A kilobyte of state, which plain connections do not carry along.
    Encrypted(Box<TokioIo<TlsStream<TcpStream>>>),
}

/// Does the same to either kind.
macro_rules! either {
    ($stream:expr, $io:ident => $work:expr) => {
        match &mut $stream.0 {
            Kind::Plain($io) => {
                let $io = Pin::new($io);
                $work
            }
            Kind::Encrypted($io) => {
                let $io = Pin::new(&mut **$io);
                $work
            }
        }
    };
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match &self.0 {
            Kind::Plain(io) => io.connected(),
            Kind::Encrypted(io) => io.inner().get_ref().0.connected(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, io => io.poll_read(context, buffer))
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, io => io.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => io.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => io.poll_shutdown(context))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Kind::Plain(io) => io.is_write_vectored(),
            Kind::Encrypted(io) => io.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, io => io.poll_write_vectored(context, slices))
    }
}
