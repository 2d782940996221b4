//! The final answer of a response: what is inside its last `\boxed{...}`.

const MARK: &str = r"\boxed";

/// Whether a text has a box at all, closed or not.
pub(super) fn has_box(text: &str) -> bool {
    text.contains(MARK)
}

/// The content of the last box; `None` without one, or when its braces do not close. One pass over the text.
pub(super) fn last_boxed(text: &str) -> Option<&str> {
    let start = text.rfind(MARK)? + MARK.len();
    let inside = text.get(start..)?.strip_prefix('{')?;
    let mut open = 1_usize;
    for (position, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => continue,
        }
        if open == 0 {
            return inside.get(..position);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_box_counts() {
        assert_eq!(last_boxed(r"first \boxed{1}, no: \boxed{2}."), Some("2"));
        assert_eq!(
            last_boxed(r"\boxed{\frac{1}{2}} done"),
            Some(r"\frac{1}{2}")
        );
        assert_eq!(last_boxed(r"\boxed{}"), Some(""));
        assert_eq!(last_boxed(r"\boxed{\boxed{7}}"), Some("7"));
    }

    #[test]
    fn no_box_is_no_answer() {
        for text in [
            "42",
            r"\boxed",
            r"\boxed 42",
            r"\boxed{42",
            r"\boxed{{42}",
            r"\fbox{42}",
            r"\boxed {42}",
        ] {
            assert_eq!(last_boxed(text), None, "{text}");
        }
    }

    #[test]
    fn a_long_response_is_read_once() {
        let text = format!(
            r"{}\boxed{{{}",
            r"\boxed{".repeat(100_000),
            "{".repeat(1_000_000)
        );
        assert_eq!(last_boxed(&text), None);
    }
}
