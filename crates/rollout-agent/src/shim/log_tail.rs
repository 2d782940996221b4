//! The last output of a process, bounded, however much it prints.

use std::collections::VecDeque;

/// Bytes that are kept.
pub(super) const LIMIT: usize = 64 * 1024;

/// A ring of the last bytes.
#[derive(Debug, Default)]
pub(super) struct LogTail {
    bytes: VecDeque<u8>,
}

impl LogTail {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let chunk = &chunk[chunk.len().saturating_sub(LIMIT)..];
        let surplus = (self.bytes.len() + chunk.len()).saturating_sub(LIMIT);
        self.bytes.drain(..surplus);
        self.bytes.extend(chunk);
    }

    /// The text; what is cut at its front or is no UTF-8 is replaced. `None` when nothing was printed.
    pub(super) fn text(&self) -> Option<String> {
        let (front, back) = self.bytes.as_slices();
        (!self.bytes.is_empty())
            .then(|| String::from_utf8_lossy(&[front, back].concat()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_bytes() {
        let mut tail = LogTail::default();
        assert_eq!(tail.text(), None);
        for _ in 0..40 {
            tail.push(&[b'a'; 4096]);
        }
        tail.push(b"the end");
        let text = tail.text().unwrap();
        assert_eq!(text.len(), LIMIT);
        assert!(text.ends_with("the end"));
    }

    #[test]
    fn a_chunk_larger_than_the_ring_is_cut() {
        let mut tail = LogTail::default();
        tail.push(&vec![b'x'; 3 * LIMIT]);
        assert_eq!(tail.text().unwrap().len(), LIMIT);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut tail = LogTail::default();
        tail.push(b"caf\xc3");
        assert_eq!(tail.text().unwrap(), "caf\u{fffd}");
    }
}
