//! One connection to the plug-in host: a line out, a line in.

use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Longest line of the protocol, without the line break.
pub(super) const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// A connection without a call on it. It is used for one call at a time: closing it cancels that call.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(super) async fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self {
            stream: BufReader::new(UnixStream::connect(socket).await?),
        })
    }

    /// Sends a line (with its line break) and reads the answer. The end of the stream is an error of kind `UnexpectedEof`, a line
    /// that is too long one of kind `InvalidData`.
    pub(super) async fn exchange(&mut self, line: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(line).await?;
        let mut answer = Vec::new();
        let limit = MAX_LINE_BYTES as u64 + 1;
        (&mut self.stream)
            .take(limit)
            .read_until(b'\n', &mut answer)
            .await?;
        if answer.last() == Some(&b'\n') {
            return Ok(answer);
        }
        let kind = if answer.len() > MAX_LINE_BYTES {
            io::ErrorKind::InvalidData
        } else {
            io::ErrorKind::UnexpectedEof
        };
        Err(kind.into())
    }
}
