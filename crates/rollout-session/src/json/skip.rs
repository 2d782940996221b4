//! Steps over a value without looking at it, yet checks it: one loop over the bytes, no recursion.

use memchr::{memchr, memchr2};

use super::MAX_DEPTH;
use super::cursor::JsonError;
use super::number;

type Result<T> = std::result::Result<T, JsonError>;

/// Shorter strings are walked byte by byte; starting a vectorized search costs more.
const SHORT: usize = 24;

fn expected<T>(expected: &'static str, offset: usize) -> Result<T> {
    Err(JsonError { expected, offset })
}

/// The containers around a position. `MAX_DEPTH` of them fit into the bits of a number: 1 is an object, 0 a list.
#[derive(Debug, Clone, Copy, Default)]
struct Nesting {
    kinds: u128,
    depth: usize,
}

impl Nesting {
    fn enter(&mut self, is_object: bool, limit: usize, at: usize) -> Result<()> {
        if self.depth >= limit {
            return expected("at most 128 levels of nesting", at);
        }
        self.kinds = (self.kinds << 1) | u128::from(is_object);
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.kinds >>= 1;
        self.depth -= 1;
    }

    fn in_object(self) -> bool {
        self.kinds & 1 == 1
    }
}

/// The offset after the value at `at`, which is within `outer` levels of containers.
pub(super) fn value(bytes: &[u8], at: usize, outer: usize) -> Result<usize> {
    let limit = MAX_DEPTH.saturating_sub(outer);
    let mut nesting = Nesting::default();
    let mut at = at;
    loop {
        at = whitespace(bytes, at);
        match bytes.get(at) {
            Some(b'"') => at = string(bytes, at)?.0,
            Some(b'-' | b'0'..=b'9') => at = number::end(bytes, at)?,
            Some(b'{') => {
                nesting.enter(true, limit, at + 1)?;
                at = whitespace(bytes, at + 1);
                if bytes.get(at) != Some(&b'}') {
                    at = key(bytes, at)?;
                    continue;
                }
                nesting.leave();
                at += 1;
            }
            Some(b'[') => {
                if let Some(end) = plain_numbers(bytes, at + 1).filter(|_| nesting.depth < limit) {
                    at = end;
                } else {
                    nesting.enter(false, limit, at + 1)?;
                    at = whitespace(bytes, at + 1);
                    if bytes.get(at) != Some(&b']') {
                        continue;
                    }
                    nesting.leave();
                    at += 1;
                }
            }
            _ => at = literal(bytes, at)?,
        }
        match after_value(bytes, at, &mut nesting)? {
            Next::Value(next) => at = next,
            Next::End(end) => return Ok(end),
        }
    }
}

enum Next {
    /// Another value of a container begins here.
    Value(usize),
    /// The outermost value ends here.
    End(usize),
}

/// Closes containers until another value follows, or nothing is open.
fn after_value(bytes: &[u8], at: usize, nesting: &mut Nesting) -> Result<Next> {
    let mut at = at;
    loop {
        if nesting.depth == 0 {
            return Ok(Next::End(at));
        }
        at = whitespace(bytes, at);
        let in_object = nesting.in_object();
        match bytes.get(at) {
            Some(b',') if in_object => {
                let start = whitespace(bytes, at + 1);
                return Ok(Next::Value(key(bytes, start)?));
            }
            Some(b',') => return Ok(Next::Value(at + 1)),
            Some(b'}') if in_object => nesting.leave(),
            Some(b']') if !in_object => nesting.leave(),
            _ if in_object => return expected("',' or '}'", at),
            _ => return expected("',' or ']'", at),
        }
        at += 1;
    }
}

pub(super) fn whitespace(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Steps over a key and its colon.
fn key(bytes: &[u8], at: usize) -> Result<usize> {
    if bytes.get(at) != Some(&b'"') {
        return expected("a key", at);
    }
    let (at, _) = string(bytes, at)?;
    let at = whitespace(bytes, at);
    if bytes.get(at) != Some(&b':') {
        return expected("':'", at);
    }
    Ok(at + 1)
}

fn literal(bytes: &[u8], at: usize) -> Result<usize> {
    let rest = bytes.get(at..).unwrap_or_default();
    for word in [&b"true"[..], b"false", b"null"] {
        if rest.starts_with(word) {
            return Ok(at + word.len());
        }
    }
    expected("a value", at)
}

/// The offset after the string at `at`, and whether it has escapes.
pub(super) fn string(bytes: &[u8], at: usize) -> Result<(usize, bool)> {
    if bytes.get(at) != Some(&b'"') {
        return expected("a string", at);
    }
    let mut at = at + 1;
    let mut escaped = false;
    loop {
        match quote_or_escape(bytes, at) {
            Some((end, b'"')) => return Ok((end + 1, escaped)),
            Some((backslash, _)) => {
                escaped = true;
                at = escape(bytes, backslash)?;
            }
            None => return expected("'\"'", bytes.len()),
        }
    }
}

fn quote_or_escape(bytes: &[u8], at: usize) -> Option<(usize, u8)> {
    let rest = bytes.get(at..)?;
    for (offset, byte) in rest.iter().take(SHORT).enumerate() {
        if matches!(byte, b'"' | b'\\') {
            return Some((at + offset, *byte));
        }
    }
    let rest = rest.get(SHORT..)?;
    let offset = memchr2(b'"', b'\\', rest)?;
    Some((at + SHORT + offset, rest[offset]))
}

/// The offset after the escape at `at`.
fn escape(bytes: &[u8], at: usize) -> Result<usize> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => {
            let digits = bytes.get(at + 2..at + 6);
            if digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                Ok(at + 6)
            } else {
                expected("four hexadecimal digits", at + 2)
            }
        }
        _ => expected("an escape", at + 1),
    }
}

/// The offset after a list of non-negative integers without any white space, whose first element is at `at`. `None` when it may be
/// anything else; the long lists of ids are such lists, and this check is one that the compiler vectorizes.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "without branches the loops are vectorized"
)]
fn plain_numbers(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    if !rest.first()?.is_ascii_digit() {
        return None;
    }
    let length = memchr(b']', rest)?;
    let list = &rest[..length];
    let is_digit = |byte: u8| byte.wrapping_sub(b'0') <= 9;
    let mut good = is_digit(list[length - 1]);
    for (left, right) in list.iter().zip(&list[1..]) {
        let comma = *left == b',';
        good &= (is_digit(*left) | comma) & (!comma | is_digit(*right));
    }
    // A zero that begins a number must be all of it.
    good &= !(list[0] == b'0' && list.get(1).is_some_and(|next| is_digit(*next)));
    for ((left, zero), right) in list.iter().zip(list.get(1..)?).zip(list.get(2..)?) {
        good &= !((*left == b',') & (*zero == b'0') & is_digit(*right));
    }
    good.then_some(at + length + 1)
}
