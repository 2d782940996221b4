//! Numbers: exact, and lists of ids without a detour.

use memchr::memchr;

use super::cursor::{Cursor, JsonError};

type Result<T> = std::result::Result<T, JsonError>;

/// The offset after the number at `at`, by the JSON grammar.
pub(super) fn end(bytes: &[u8], at: usize) -> Result<usize> {
    let wrong = Err(JsonError {
        expected: "a number",
        offset: at,
    });
    let digits = |mut at: usize| {
        let first = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at, at - first)
    };
    let start = at + usize::from(bytes.get(at) == Some(&b'-'));
    let leading_zero = bytes.get(start) == Some(&b'0');
    let (mut at, count) = digits(start);
    if count == 0 || (leading_zero && count > 1) {
        return wrong;
    }
    if bytes.get(at) == Some(&b'.') {
        let (after, count) = digits(at + 1);
        if count == 0 {
            return wrong;
        }
        at = after;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
        let (after, count) = digits(at);
        if count == 0 {
            return wrong;
        }
        at = after;
    }
    Ok(at)
}

/// Up to seven digits and what follows them, in one step: `(number, digits, byte after them)`. Branches on single digits are what
/// makes long lists of ids slow.
fn few_digits(bytes: &[u8], at: usize) -> Option<(u32, usize, u8)> {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(*bytes.get(at..at + 8)?.first_chunk()?);
    let values = word ^ ZEROS;
    // The high bit of each byte that is not 0 to 9.
    let others = (((values & !HIGH) + 0x7676_7676_7676_7676) | values) & HIGH;
    let count = (others.trailing_zeros() / 8) as usize;
    if count == 0 || count == 8 || (count > 1 && values.trailing_zeros() >= 8) {
        return None;
    }
    // Eight digits with zeros before, then pairs, quadruples, all.
    let padded = values << (64 - 8 * count);
    let pairs = padded.wrapping_mul(10).wrapping_add(padded >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    let number = low.wrapping_add(high) >> 32;
    Some((u32::try_from(number).ok()?, count, bytes[at + count]))
}

impl Cursor<'_> {
    fn number_text(&mut self) -> Result<&str> {
        self.skip_whitespace();
        let start = self.position();
        let end = end(self.bytes(), start)?;
        self.advance_to(end);
        Ok(self.text().get(start..end).unwrap_or_default())
    }

    /// Reads a number, correctly rounded, so that the shortest text of an `f64` gives the same bits again.
    ///
    /// # Errors
    /// The value is not a number, or too large to be finite.
    pub fn f64(&mut self) -> Result<f64> {
        let number: f64 = match self.number_text()?.parse() {
            Ok(number) => number,
            Err(_) => return self.expected("a number"),
        };
        if number.is_finite() {
            Ok(number)
        } else {
            self.expected("a finite number")
        }
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// The value is not an integer of 64 bits.
    pub fn i64(&mut self) -> Result<i64> {
        match self.number_text()?.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.expected("an integer"),
        }
    }

    /// Reads a token id.
    ///
    /// # Errors
    /// The value is not an integer between 0 and 2^32 - 1.
    pub fn id(&mut self) -> Result<u32> {
        self.skip_whitespace();
        let bytes = self.bytes();
        let mut at = self.position();
        let first = at;
        let mut id: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = bytes.get(at)
            && at - first < 10
        {
            id = id * 10 + u64::from(digit - b'0');
            at += 1;
        }
        let ends = !matches!(bytes.get(at), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
        let padded = at - first > 1 && bytes.get(first) == Some(&b'0');
        match u32::try_from(id) {
            Ok(id) if at > first && ends && !padded => {
                self.advance_to(at);
                Ok(id)
            }
            _ => self.expected("a token id"),
        }
    }

    /// Reads a list of token ids.
    ///
    /// # Errors
    /// The value is not a list of integers between 0 and 2^32 - 1.
    pub fn ids(&mut self) -> Result<Vec<u32>> {
        self.skip_whitespace();
        if !self.take(b'[') {
            return self.expected("a list of token ids");
        }
        let mut ids = Vec::new();
        self.skip_whitespace();
        if !self.take(b']') {
            self.more_ids(&mut ids)?;
        }
        Ok(ids)
    }

    /// Reads ids up to the end of their list.
    fn more_ids(&mut self, ids: &mut Vec<u32>) -> Result<()> {
        let bytes = self.bytes();
        let mut at = self.position();
        let length = memchr(b']', bytes.get(at..).unwrap_or_default()).unwrap_or(0);
        // Ids of large vocabularies have five digits or six, and a comma.
        ids.reserve(length / 5);
        while let Some((id, digits, b',')) = few_digits(bytes, at) {
            ids.push(id);
            at += digits + 1;
        }
        self.advance_to(at);
        self.rest_of_ids(ids)
    }

    /// Reads a list of token ids of which the text of the first ones is known: they are taken over without being read. Answers `None`,
    /// with nothing read, when the list does not begin so.
    ///
    /// # Errors
    /// The rest is not a list of integers between 0 and 2^32 - 1.
    pub fn ids_after(&mut self, known_text: &str, known: Vec<u32>) -> Result<Option<Vec<u32>>> {
        self.skip_whitespace();
        let start = self.position();
        let rest = self.text().get(start..).unwrap_or_default();
        let next = rest
            .strip_prefix('[')
            .and_then(|list| list.strip_prefix(known_text))
            .and_then(|after| after.bytes().next());
        let Some(next @ (b',' | b']')) = next else {
            return Ok(None);
        };
        self.advance_to(start + 1 + known_text.len() + 1);
        let mut ids = known;
        if next == b',' {
            self.more_ids(&mut ids)?;
        }
        Ok(Some(ids))
    }

    /// Reads on one by one: the last id, and whatever has white space or is wrong.
    fn rest_of_ids(&mut self, ids: &mut Vec<u32>) -> Result<()> {
        loop {
            ids.push(self.id()?);
            self.skip_whitespace();
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return self.expected("',' or ']'");
            }
        }
    }
}
