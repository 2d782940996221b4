//! What Python's `str` calls a space, and the methods that follow from it.

/// `str.isspace` of one character: Unicode's, and the four separators of ASCII besides.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// `str.strip()`.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str.rstrip()`.
pub(super) fn strip_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// `str.lstrip()`.
pub(super) fn strip_start(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

/// `str.split()`, at most `limit` times.
pub(super) fn split_spaces(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip_start(text);
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(strip_end(rest));
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = strip_start(&rest[end..]);
    }
    parts
}

/// `str.rsplit()`, at most `limit` times.
pub(super) fn rsplit_spaces(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip_end(text);
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(strip_start(rest));
            break;
        }
        let start = rest
            .char_indices()
            .rev()
            .find(|(_, c)| is_space(*c))
            .map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[start..]);
        rest = strip_end(&rest[..start]);
    }
    parts.reverse();
    parts
}

/// `str.splitlines(keepends)`.
pub(super) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(end) = rest.find(is_end) else {
            lines.push(rest);
            break;
        };
        let after = &rest[end..];
        let width = if after.starts_with("\r\n") {
            2
        } else {
            after.chars().next().map_or(0, char::len_utf8)
        };
        lines.push(&rest[..if keep_ends { end + width } else { end }]);
        rest = &rest[end + width..];
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_split_as_in_python() {
        assert_eq!(
            split_spaces("  a \x1c b\u{a0}c ", usize::MAX),
            ["a", "b", "c"]
        );
        assert_eq!(split_spaces(" a  b c ", 1), ["a", "b c"]);
        assert_eq!(rsplit_spaces(" a  b c ", 1), [" a  b".trim_start(), "c"]);
        assert!(split_spaces(" \n", 3).is_empty());
    }

    #[test]
    fn lines_end_as_in_python() {
        assert_eq!(
            lines("a\r\nb\u{2028}c\n\nd", false),
            ["a", "b", "c", "", "d"]
        );
        assert_eq!(lines("a\r\nb\x1d", true), ["a\r\n", "b\x1d"]);
        assert!(lines("", false).is_empty());
    }
}
