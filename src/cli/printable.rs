//! Text of others (a model, a tool, an agent, a plug-in, an engine), safe to print on a terminal. Pure.

/// Control characters other than line breaks and tabs, and the marks that turn the direction of text (Unicode's bidirectional controls), are
/// shown, not obeyed.
pub(super) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '\n' | '\t' => safe.push(sign),
            obeyed if obeyed.is_control() || turns_text(obeyed) => {
                safe.extend(obeyed.escape_default());
            }
            other => safe.push(other),
        }
    }
    safe
}

/// The characters with Unicode's property `Bidi_Control`.
fn turns_text(sign: char) -> bool {
    matches!(sign, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\n\tc\u{7}\u{9b}1m"),
            "a\\u{1b}[2Jb\\r\n\tc\\u{7}\\u{9b}1m"
        );
    }

    #[test]
    fn marks_that_turn_text_are_shown_and_other_scripts_are_not_touched() {
        assert_eq!(
            printable("\u{202e}a\u{2066}b\u{2069}\u{200f}\u{61c}"),
            "\\u{202e}a\\u{2066}b\\u{2069}\\u{200f}\\u{61c}"
        );
        let as_it_is = "שלום, grüße, 你好, e\u{301}, 👩\u{200d}💻";
        assert_eq!(printable(as_it_is), as_it_is);
    }
}
