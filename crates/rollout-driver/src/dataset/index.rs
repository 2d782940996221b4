//! Where each row of a JSONL file starts.
//!
//! Rows stay on disk: the index is eight bytes per row, so that a million rows cost 8 MB however long they are. Blank lines are not
//! rows; they are remembered, so that an error can name the line that an editor shows.
//!
//! Guarantee: [`RowIndex::read`] returns the bytes that the scan saw as that row, or an error: a file that shrank in place is noticed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::slice::Slice;

/// A row longer than this is refused: it would be a file without line breaks, not a prompt.
pub(super) const MAX_ROW_BYTES: u64 = 64 * 1024 * 1024;

const BLOCK: usize = 256 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes behind an index.
#[derive(Debug)]
pub(super) enum Storage {
    /// A file, kept open: a file of the same name that replaces it is not seen.
    File(File),
    /// Rows that came inside a manifest.
    Memory(Vec<u8>),
}

impl Storage {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Memory(bytes) => {
                let rest = usize::try_from(offset)
                    .ok()
                    .and_then(|at| bytes.get(at..))
                    .unwrap_or_default();
                io::Read::read(&mut &*rest, buffer)
            }
        }
    }
}

/// Row starts of one data set.
#[derive(Debug)]
pub(super) struct RowIndex {
    storage: Storage,
    /// Start of each row, and at the end the place where the scan stopped.
    starts: Vec<u64>,
    /// For each blank line among the rows, how many rows came before it.
    blanks: Vec<u64>,
    first: u64,
}

impl RowIndex {
    /// Scans the rows up to the end of `slice`, or the whole file without one. `first` of the slice is remembered, not cut off:
    /// row numbers are those of the file.
    pub(super) fn scan(storage: Storage, slice: Option<Slice>) -> io::Result<Self> {
        let stop = slice.and_then(|slice| slice.end).unwrap_or(u64::MAX);
        let mut scan = Scan::default();
        let mut reader = At {
            storage: &storage,
            offset: 0,
        };
        let mut block = vec![0; BLOCK];
        loop {
            let filled = reader.read(&mut block)?;
            if filled == 0 {
                scan.end_of_file();
                break;
            }
            if scan.block(&block[..filled], stop) {
                break;
            }
        }
        scan.starts.push(scan.offset);
        let (starts, blanks) = (scan.starts, scan.blanks);
        Ok(Self {
            storage,
            starts,
            blanks,
            first: slice.map_or(0, |slice| slice.start),
        })
    }

    /// Rows that the scan saw, those before the slice included.
    pub(super) fn scanned(&self) -> u64 {
        self.starts.len().saturating_sub(1) as u64
    }

    /// Number of the first row of the slice.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Where rows start, and where the scan stopped.
    pub(super) fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Line of a row in the file, from 1.
    pub(super) fn line(&self, row: u64) -> u64 {
        row + self.blanks.partition_point(|before| *before <= row) as u64 + 1
    }

    /// The bytes of a row, without its line break.
    pub(super) fn read(&self, row: u64) -> io::Result<Vec<u8>> {
        let at = usize::try_from(row).unwrap_or(usize::MAX);
        let (Some(start), Some(end)) = (self.starts.get(at), self.starts.get(at.saturating_add(1)))
        else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("there is no row {row}"),
            ));
        };
        if end - start > MAX_ROW_BYTES {
            let text = format!(
                "the row has {} bytes, the limit is {MAX_ROW_BYTES}",
                end - start
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
        let mut reader = At {
            storage: &self.storage,
            offset: *start,
        };
        reader
            .read_exact(&mut bytes)
            .map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => {
                    io::Error::new(source.kind(), "the file became shorter after it was opened")
                }
                _ => source,
            })?;
        if let Some(line_break) = memchr::memchr(b'\n', &bytes) {
            bytes.truncate(line_break);
        }
        Ok(bytes)
    }
}

struct At<'a> {
    storage: &'a Storage,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.storage.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// The state of a scan between two blocks.
#[derive(Default)]
struct Scan {
    starts: Vec<u64>,
    blanks: Vec<u64>,
    /// Bytes seen.
    offset: u64,
    line_start: u64,
    line_has_text: bool,
}

impl Scan {
    /// Takes the next block; true when `stop` rows are complete.
    fn block(&mut self, block: &[u8], stop: u64) -> bool {
        let mut rest = block;
        if self.offset == 0 && rest.starts_with(BYTE_ORDER_MARK) {
            self.line_start = BYTE_ORDER_MARK.len() as u64;
            self.offset = self.line_start;
            rest = &rest[BYTE_ORDER_MARK.len()..];
        }
        while let Some(line_break) = memchr::memchr(b'\n', rest) {
            self.text(&rest[..line_break]);
            self.offset += 1;
            self.end_of_line();
            rest = &rest[line_break + 1..];
            if self.starts.len() as u64 == stop {
                return true;
            }
        }
        self.text(rest);
        false
    }

    fn text(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        self.line_has_text = self.line_has_text || !bytes.trim_ascii().is_empty();
    }

    fn end_of_line(&mut self) {
        if self.line_has_text {
            self.starts.push(self.line_start);
        } else {
            self.blanks.push(self.starts.len() as u64);
        }
        self.line_start = self.offset;
        self.line_has_text = false;
    }

    fn end_of_file(&mut self) {
        if self.line_has_text {
            self.starts.push(self.line_start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(text: &str) -> Vec<(u64, String)> {
        let index = RowIndex::scan(Storage::Memory(text.as_bytes().to_vec()), None)
            .expect("memory can be read");
        (0..index.scanned())
            .map(|row| {
                (
                    index.line(row),
                    String::from_utf8(index.read(row).expect("the row")).expect("text"),
                )
            })
            .collect()
    }

    #[test]
    fn blank_lines_are_not_rows_and_still_count_as_lines() {
        let text = "\n \t\r\na\n\n\nb\nc";
        assert_eq!(
            rows(text),
            [
                (3, "a".to_owned()),
                (6, "b".to_owned()),
                (7, "c".to_owned())
            ]
        );
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_row() {
        assert_eq!(
            rows("\u{feff}a\nb\n"),
            [(1, "a".to_owned()), (2, "b".to_owned())]
        );
    }

    #[test]
    fn the_scan_ends_with_the_slice() {
        let slice = Slice {
            start: 1,
            end: Some(2),
        };
        let index =
            RowIndex::scan(Storage::Memory(b"a\nb\nc\nd\n".to_vec()), Some(slice)).expect("a scan");
        assert_eq!((index.scanned(), index.first()), (2, 1));
        assert_eq!(index.read(1).expect("the row"), b"b");
        assert!(index.read(2).is_err());
    }

    #[test]
    fn a_file_that_shrinks_is_an_error_and_not_another_row() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "first\nsecond\n").expect("written");
        let index = RowIndex::scan(
            Storage::File(File::open(file.path()).expect("opened")),
            None,
        )
        .expect("a scan");
        File::options()
            .write(true)
            .open(file.path())
            .and_then(|f| f.set_len(8))
            .expect("cut");
        assert_eq!(index.read(0).expect("the row"), b"first");
        let error = index.read(1).expect_err("cut off").to_string();
        assert_eq!(error, "the file became shorter after it was opened");
    }

    proptest! {
        #[test]
        fn rows_are_the_lines_that_are_not_blank(lines in prop::collection::vec("[a ]{0,3}\r?", 0..40), end in any::<bool>()) {
            let mut text = lines.join("\n");
            if end {
                text.push('\n');
            }
            let expected: Vec<_> = (1_u64..)
                .zip(&lines)
                .filter(|(_, line)| !line.trim().is_empty())
                .map(|(number, line)| (number, line.clone()))
                .collect();
            prop_assert_eq!(rows(&text), expected);
        }
    }
}
