//! The reader itself: position, structure, strings.

use std::borrow::Cow;
use std::ops::Range;

use super::{MAX_DEPTH, skip};

/// What is wrong with the JSON, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at byte {offset}")]
pub struct JsonError {
    /// What would have been right.
    pub expected: &'static str,
    /// Offset in bytes from the start of the input.
    pub offset: usize,
}

/// Type of the next value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

/// Key of a field, and where the field begins.
#[derive(Debug, Clone)]
pub struct Key<'a> {
    /// The key, unescaped.
    pub name: Cow<'a, str>,
    /// Offset of its opening quote.
    pub start: usize,
}

/// A position in JSON text.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

type Result<T> = std::result::Result<T, JsonError>;

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
        }
    }

    /// Starts at the first byte of a body that must be UTF-8.
    ///
    /// # Errors
    /// Names the first byte that is not UTF-8.
    pub fn of_bytes(bytes: &'a [u8]) -> Result<Self> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(text)),
            Err(error) => Err(JsonError {
                expected: "UTF-8",
                offset: error.valid_up_to(),
            }),
        }
    }

    /// A cursor over one value that an earlier walk located.
    pub fn within(text: &'a str, span: &Range<usize>) -> Self {
        Self {
            text: text.get(..span.end).unwrap_or(text),
            at: span.start,
            depth: 0,
        }
    }

    /// Offset of the next byte.
    pub fn position(&self) -> usize {
        self.at
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    pub(super) fn advance_to(&mut self, at: usize) {
        self.at = at;
    }

    pub(super) fn expected<T>(&self, expected: &'static str) -> Result<T> {
        Err(JsonError {
            expected,
            offset: self.at,
        })
    }

    fn byte(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    pub(super) fn skip_whitespace(&mut self) {
        self.at = skip::whitespace(self.bytes(), self.at);
    }

    pub(super) fn take(&mut self, wanted: u8) -> bool {
        let found = self.byte() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.expected("at most 128 levels of nesting");
        }
        Ok(())
    }

    /// Type of the next value, without reading it.
    ///
    /// # Errors
    /// There is no value.
    pub fn kind(&mut self) -> Result<Kind> {
        self.skip_whitespace();
        match self.byte() {
            Some(b'n') => Ok(Kind::Null),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'"') => Ok(Kind::String),
            Some(b'[') => Ok(Kind::Array),
            Some(b'{') => Ok(Kind::Object),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            _ => self.expected("a value"),
        }
    }

    /// Nothing but white space may be left.
    ///
    /// # Errors
    /// Something is left.
    pub fn finish(&mut self) -> Result<()> {
        self.skip_whitespace();
        match self.byte() {
            None => Ok(()),
            Some(_) => self.expected("the end of the input"),
        }
    }

    /// Reads an object. `each` is called at every value and must read it.
    ///
    /// # Errors
    /// Malformed JSON, or what `each` returns.
    pub fn object<E: From<JsonError>>(
        &mut self,
        mut each: impl FnMut(&Key<'a>, &mut Self) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.skip_whitespace();
        if !self.take(b'{') {
            return Ok(self.expected("an object")?);
        }
        self.enter()?;
        self.skip_whitespace();
        if !self.take(b'}') {
            loop {
                self.skip_whitespace();
                let start = self.at;
                if self.byte() != Some(b'"') {
                    return Ok(self.expected("a key")?);
                }
                let key = Key {
                    name: self.string()?,
                    start,
                };
                self.skip_whitespace();
                if !self.take(b':') {
                    return Ok(self.expected("':'")?);
                }
                self.skip_whitespace();
                each(&key, self)?;
                self.skip_whitespace();
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return Ok(self.expected("',' or '}'")?);
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a list. `each` is called at every element and must read it.
    ///
    /// # Errors
    /// Malformed JSON, or what `each` returns.
    pub fn array<E: From<JsonError>>(
        &mut self,
        mut each: impl FnMut(usize, &mut Self) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.skip_whitespace();
        if !self.take(b'[') {
            return Ok(self.expected("a list")?);
        }
        self.enter()?;
        self.skip_whitespace();
        if !self.take(b']') {
            let mut index = 0;
            loop {
                self.skip_whitespace();
                each(index, self)?;
                index += 1;
                self.skip_whitespace();
                if self.take(b']') {
                    break;
                }
                if !self.take(b',') {
                    return Ok(self.expected("',' or ']'")?);
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Steps over the next value, whatever it is, and says where it lies.
    ///
    /// # Errors
    /// Malformed JSON.
    pub fn span(&mut self) -> Result<Range<usize>> {
        self.skip_whitespace();
        let start = self.at;
        self.skip()?;
        Ok(start..self.at)
    }

    /// Steps over the next value, whatever it is.
    ///
    /// # Errors
    /// Malformed JSON.
    pub fn skip(&mut self) -> Result<()> {
        self.at = skip::value(self.bytes(), self.at, self.depth)?;
        Ok(())
    }

    fn literal(&mut self, word: &'static str) -> Result<()> {
        if self.bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            self.expected(word)
        }
    }

    /// Reads `null` if it is next.
    ///
    /// # Errors
    /// Malformed JSON.
    pub fn null(&mut self) -> Result<bool> {
        if self.kind()? != Kind::Null {
            return Ok(false);
        }
        self.literal("null")?;
        Ok(true)
    }

    /// Reads `true` or `false`.
    ///
    /// # Errors
    /// The value is neither.
    pub fn boolean(&mut self) -> Result<bool> {
        self.skip_whitespace();
        if self.byte() == Some(b't') {
            self.literal("true")?;
            return Ok(true);
        }
        self.literal("false")?;
        Ok(false)
    }

    /// Reads a string. Escapes are resolved; a lone surrogate becomes U+FFFD.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn string(&mut self) -> Result<Cow<'a, str>> {
        self.skip_whitespace();
        let start = self.at;
        let (end, escaped) = skip::string(self.bytes(), start)?;
        self.at = end;
        let raw = &self.text[start + 1..end - 1];
        Ok(if escaped {
            Cow::Owned(unescape(raw))
        } else {
            Cow::Borrowed(raw)
        })
    }
}

/// Resolves the escapes of a string whose escapes were checked.
fn unescape(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let mut chars = after.chars();
        let escape = chars.next().unwrap_or('\\');
        rest = chars.as_str();
        match escape {
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'u' => {
                let (unit, used) = code_unit(rest);
                rest = &rest[used..];
                text.push(unit);
            }
            other => text.push(other),
        }
    }
    text.push_str(rest);
    text
}

/// The character of `XXXX` or `XXXX\uYYYY`, and the bytes that it takes.
fn code_unit(rest: &str) -> (char, usize) {
    let unit = |text: Option<&str>| text.and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let high = unit(rest.get(..4)).unwrap_or(0xfffd);
    if (0xd800..0xdc00).contains(&high)
        && rest.get(4..6) == Some("\\u")
        && let Some(low @ 0xdc00..0xe000) = unit(rest.get(6..10))
    {
        let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        return (char::from_u32(code).unwrap_or('\u{fffd}'), 10);
    }
    (char::from_u32(high).unwrap_or('\u{fffd}'), 4)
}
