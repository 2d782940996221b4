//! Numbers: exact, and lists of ids without a detour.

use std::ops::Range;

use super::cursor::{Cursor, JsonError};

type Result<T> = std::result::Result<T, JsonError>;

/// Steps over a number of the JSON grammar.
pub(super) fn span(cursor: &mut Cursor<'_>) -> Result<Range<usize>> {
    let bytes = cursor.bytes();
    let start = cursor.position();
    let digits = |mut at: usize| {
        let first = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at, at - first)
    };
    let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
    let leading_zero = bytes.get(at) == Some(&b'0');
    let (after, count) = digits(at);
    if count == 0 || (leading_zero && count > 1) {
        return cursor.expected("a number");
    }
    at = after;
    if bytes.get(at) == Some(&b'.') {
        let (after, count) = digits(at + 1);
        if count == 0 {
            return cursor.expected("a number");
        }
        at = after;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
        let (after, count) = digits(at);
        if count == 0 {
            return cursor.expected("a number");
        }
        at = after;
    }
    cursor.advance_to(at);
    Ok(start..at)
}

impl Cursor<'_> {
    fn number_text(&mut self) -> Result<&str> {
        self.skip_whitespace();
        let span = span(self)?;
        Ok(std::str::from_utf8(&self.bytes()[span]).unwrap_or_default())
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
        if self.take(b']') {
            return Ok(ids);
        }
        loop {
            ids.push(self.id()?);
            if !self.take(b',') {
                self.skip_whitespace();
                if self.take(b']') {
                    return Ok(ids);
                }
                if !self.take(b',') {
                    return self.expected("',' or ']'");
                }
            }
        }
    }
}
