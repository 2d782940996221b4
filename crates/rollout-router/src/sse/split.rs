//! Cuts a stream of bytes into server-sent events.

use bytes::{Bytes, BytesMut};

/// The bytes that are not an event yet.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    buffer: BytesMut,
    /// Bytes at the start of the buffer that have no end of a line.
    scanned: usize,
    data: Option<Bytes>,
}

impl Splitter {
    /// Takes the next piece of the stream.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The data of the next event that is complete. Comments, and fields other than `data`, are skipped.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            let mut line = self.buffer.split_to(self.scanned + end + 1).freeze();
            self.scanned = 0;
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if line.is_empty() {
                match self.data.take() {
                    Some(data) => return Some(data),
                    None => continue,
                }
            }
            if line.starts_with(b"data:") {
                let blank = usize::from(line.get(5) == Some(&b' '));
                self.add(line.slice(5 + blank..));
            }
        }
        self.scanned = self.buffer.len();
        None
    }

    /// Several lines of data are one text.
    fn add(&mut self, value: Bytes) {
        self.data = Some(match self.data.take() {
            None => value,
            Some(before) => Bytes::from([&before[..], b"\n", &value[..]].concat()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Splitter;

    fn split(text: &str, size: usize) -> Vec<String> {
        let mut splitter = Splitter::default();
        let mut events = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            splitter.push(piece);
            while let Some(data) = splitter.next() {
                events.push(String::from_utf8(data.to_vec()).unwrap());
            }
        }
        events
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let text = "data: {\"a\":1}\n\n: comment\n\nevent: x\r\ndata:two\r\n\r\ndata: l1\ndata: l2\n\n\ndata: [DONE]\n\ndata: cut";
        for size in 1..text.len() {
            let events = split(text, size);
            assert_eq!(events, ["{\"a\":1}", "two", "l1\nl2", "[DONE]"], "{size}");
        }
    }
}
