//! Strings as sequences of code points.
//!
//! A JSON string can hold half of a surrogate pair, which no Rust string can; Python keeps it. So strings are compared as UTF-8 in
//! which a lone half has the three bytes that its number would have.

use std::borrow::Cow;

/// The code points of a string, given with its quotes.
pub(super) fn code_points(raw: &str) -> Cow<'_, [u8]> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    let Some(first) = memchr::memchr(b'\\', inner.as_bytes()) else {
        return Cow::Borrowed(inner.as_bytes());
    };
    let mut out = Vec::with_capacity(inner.len());
    out.extend_from_slice(&inner.as_bytes()[..first]);
    let mut rest = &inner[first..];
    while let Some(after) = rest.strip_prefix('\\') {
        rest = escape(after, &mut out);
        let next = memchr::memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
        out.extend_from_slice(&rest.as_bytes()[..next]);
        rest = &rest[next..];
    }
    Cow::Owned(out)
}

/// Whether a string, given with its quotes, has half of a surrogate pair.
pub(super) fn has_lone_surrogate(raw: &str) -> bool {
    std::str::from_utf8(&code_points(raw)).is_err()
}

/// Resolves the escape whose backslash is taken, and answers what follows it.
fn escape<'a>(after: &'a str, out: &mut Vec<u8>) -> &'a str {
    let mut chars = after.chars();
    let Some(kind) = chars.next() else { return "" };
    let rest = chars.as_str();
    match kind {
        'b' => out.push(0x8),
        'f' => out.push(0xc),
        'n' => out.push(b'\n'),
        'r' => out.push(b'\r'),
        't' => out.push(b'\t'),
        'u' => return unicode(rest, out),
        other => push(u32::from(other), out),
    }
    rest
}

fn unicode<'a>(rest: &'a str, out: &mut Vec<u8>) -> &'a str {
    let unit = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
    let Some(high) = unit(rest) else { return rest };
    let rest = &rest[4..];
    if (0xd800..0xdc00).contains(&high)
        && let Some(second) = rest.strip_prefix("\\u")
        && let Some(low @ 0xdc00..0xe000) = unit(second)
    {
        push(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), out);
        return &second[4..];
    }
    push(high, out);
    rest
}

fn push(point: u32, out: &mut Vec<u8>) {
    if let Some(char) = char::from_u32(point) {
        let mut buffer = [0; 4];
        out.extend_from_slice(char.encode_utf8(&mut buffer).as_bytes());
    } else {
        let six_bits = |shift: u32| 0x80 | ((point >> shift) & 0x3f).to_le_bytes()[0];
        out.extend([
            0xe0 | (point >> 12).to_le_bytes()[0],
            six_bits(6),
            six_bits(0),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_string_are_one() {
        for (left, right) in [
            (r#""\u00e9""#, r#""é""#),
            (r#""\ud83d\ude00""#, r#""😀""#),
            (r#""a\/b""#, r#""a/b""#),
            (
                r#""\"\\\b\f\n\r\t""#,
                r#""\u0022\u005c\u0008\u000c\u000a\u000d\u0009""#,
            ),
            (r#""\uD800x""#, r#""\ud800x""#),
        ] {
            assert_eq!(code_points(left), code_points(right), "{left} {right}");
        }
    }

    #[test]
    fn halves_of_pairs_stay_different() {
        let texts = [r#""\ud800""#, r#""\ud801""#, r#""\udc00""#, r#""\ufffd""#];
        for (at, left) in texts.iter().enumerate() {
            for right in &texts[at + 1..] {
                assert_ne!(code_points(left), code_points(right), "{left} {right}");
            }
            assert_eq!(has_lone_surrogate(left), at < 3);
        }
    }
}
