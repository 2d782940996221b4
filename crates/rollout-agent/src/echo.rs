//! Passes the output of user code on to this process's standard error, bounded in rate.

use std::{
    io::Write,
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
    time::Instant,
};

/// Chunks that wait to be written.
const WAITING: usize = 64;

/// Bytes that pass at once, and that come back per second.
const BURST: f64 = 4.0 * 1024.0 * 1024.0;
const PER_SECOND: f64 = 256.0 * 1024.0;

/// A way to standard error. A reader that is slow or gone, or a flood, costs output, never time. Clones are the same way.
#[derive(Debug, Clone)]
pub(crate) struct Echo {
    chunks: Option<SyncSender<Vec<u8>>>,
}

impl Echo {
    pub(crate) fn new(enabled: bool) -> Self {
        if !enabled {
            return Self { chunks: None };
        }
        let (sender, receiver) = mpsc::sync_channel(WAITING);
        // A thread of its own: a blocked standard error must not hold the runtime at the end.
        thread::spawn(move || write(&receiver));
        Self {
            chunks: Some(sender),
        }
    }

    pub(crate) fn push(&self, chunk: &[u8]) {
        if let Some(chunks) = &self.chunks {
            let _ = chunks.try_send(chunk.to_vec());
        }
    }
}

fn write(chunks: &Receiver<Vec<u8>>) {
    let mut stream = std::io::stderr();
    let mut budget = Budget::new(Instant::now());
    while let Ok(chunk) = chunks.recv() {
        let written = match budget.take(chunk.len(), Instant::now()) {
            Pass::Drop => Ok(()),
            Pass::Write { dropped: 0 } => stream.write_all(&chunk),
            Pass::Write { dropped } => {
                writeln!(stream, "\n[{dropped} bytes of output were dropped]")
                    .and_then(|()| stream.write_all(&chunk))
            }
        };
        if written.is_err() {
            return;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Pass {
    Drop,
    Write { dropped: usize },
}

/// How much may be written: pure.
#[derive(Debug)]
struct Budget {
    left: f64,
    at: Instant,
    dropped: usize,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            at: now,
            dropped: 0,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "lengths of chunks are small")]
    fn take(&mut self, length: usize, now: Instant) -> Pass {
        let back = now.saturating_duration_since(self.at).as_secs_f64() * PER_SECOND;
        self.left = (self.left + back).min(BURST);
        self.at = now;
        if self.left < length as f64 {
            self.dropped += length;
            return Pass::Drop;
        }
        self.left -= length as f64;
        Pass::Write {
            dropped: std::mem::take(&mut self.dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_is_dropped_and_counted() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mebibyte = 1024 * 1024;
        for _ in 0..4 {
            assert_eq!(budget.take(mebibyte, start), Pass::Write { dropped: 0 });
        }
        assert_eq!(budget.take(mebibyte, start), Pass::Drop);
        assert_eq!(budget.take(10, start), Pass::Drop);
        assert_eq!(
            budget.take(10, start + Duration::from_secs(1)),
            Pass::Write {
                dropped: mebibyte + 10
            }
        );
    }
}
