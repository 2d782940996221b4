//! Text of others (a model, a tool, an agent, a plug-in, an engine, a manifest), safe to print on a terminal. Pure.

/// Control characters other than line breaks and tabs, the marks that turn the direction of text (Unicode's bidirectional controls), and what takes no
/// place on a line are shown, not obeyed.
pub(super) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut before = None;
    for sign in text.chars() {
        match sign {
            '\n' | '\t' => safe.push(sign),
            // Joiners have their place inside of words of some scripts and of emoji.
            '\u{200c}' | '\u{200d}' if before.is_some_and(|before: char| !before.is_ascii()) => {
                safe.push(sign);
            }
            hidden if hidden.is_control() || turns_text(hidden) || is_invisible(hidden) => {
                safe.extend(hidden.escape_default());
            }
            other => safe.push(other),
        }
        before = Some(sign);
    }
    safe
}

/// The same for a text that is one line: what would end it is shown too, so that nobody's text passes for a line of ours.
pub(super) fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

/// The same for an event of our own log, in which the logger's colours are obeyed: `ESC [`, digits and semicolons, `m`.
pub(super) fn printable_log(event: &str) -> String {
    let mut safe = String::with_capacity(event.len());
    let mut rest = event;
    while let Some(at) = rest.find('\u{1b}') {
        safe.push_str(&printable(&rest[..at]));
        let length = color(&rest[at..]);
        match length {
            Some(length) => safe.push_str(&rest[at..at + length]),
            None => safe.push_str(&printable("\u{1b}")),
        }
        rest = &rest[at + length.unwrap_or(1)..];
    }
    safe + &printable(rest)
}

/// Length of the colour that a text begins with, if it does.
fn color(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find(|sign: char| !sign.is_ascii_digit() && sign != ';')?;
    codes[end..].starts_with('m').then_some(end + 3)
}

/// The characters with Unicode's property `Bidi_Control`.
fn turns_text(sign: char) -> bool {
    matches!(sign, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Of the characters with Unicode's property `Default_Ignorable_Code_Point`, those that no text needs: variation selectors choose the form of what is
/// before them, and stay.
fn is_invisible(sign: char) -> bool {
    matches!(
        sign,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}'
    )
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
    fn a_line_stays_one_line() {
        assert_eq!(printable_line("a\nerror: b\r"), "a\\nerror: b\\r");
    }

    #[test]
    fn a_log_has_its_colours_and_nothing_else_is_obeyed() {
        let colored = "\u{1b}[2m12:00\u{1b}[0m \u{1b}[1;33m WARN\u{1b}[0m a=\"b\"\n";
        assert_eq!(printable_log(colored), colored);
        for (event, shown) in [
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\u{1b}", "a\\u{1b}"),
            ("\u{1b}[31", "\\u{1b}[31"),
            ("\u{1b}[3ä", "\\u{1b}[3ä"),
            ("\u{202e}\u{9b}1m", "\\u{202e}\\u{9b}1m"),
        ] {
            assert_eq!(printable_log(event), shown);
        }
    }

    #[test]
    fn marks_that_turn_text_are_shown_and_other_scripts_are_not_touched() {
        assert_eq!(
            printable("\u{202e}a\u{2066}b\u{2069}\u{200f}\u{61c}"),
            "\\u{202e}a\\u{2066}b\\u{2069}\\u{200f}\\u{61c}"
        );
        assert_eq!(
            printable("4\u{200b} \u{feff}a\u{200d}b\u{ad}\u{2060}\u{e0041}"),
            "4\\u{200b} \\u{feff}a\\u{200d}b\\u{ad}\\u{2060}\\u{e0041}"
        );
        let as_it_is =
            "می\u{200c}خواهم, 1\u{fe0f}\u{20e3}, שלום, grüße, 你好, e\u{301}, 👩\u{200d}💻";
        assert_eq!(printable(as_it_is), as_it_is);
    }
}
