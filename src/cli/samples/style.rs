//! Colours, and the signs that stand for them where there are none.

use std::ffi::OsStr;

use super::Color;

/// How text is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// With ANSI colours.
    Colored,
    /// With brackets.
    Plain,
}

const RESET: &str = "\u{1b}[0m";
const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const GREEN: &str = "\u{1b}[32m";

impl Style {
    /// What a person asked for, else colours on a terminal where `NO_COLOR` is not set.
    pub(super) fn choose(wanted: Color, no_color: Option<&OsStr>, is_terminal: bool) -> Self {
        let colored = match wanted {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && no_color.is_none_or(OsStr::is_empty),
        };
        if colored { Self::Colored } else { Self::Plain }
    }

    /// A heading.
    pub(super) fn heading(self, text: &str) -> String {
        self.wrapped(BOLD, text)
    }

    /// Names of fields and roles.
    pub(super) fn name(self, text: &str) -> String {
        self.wrapped(DIM, text)
    }

    /// Text whose tokens are trained, line by line, so that an indented line is marked by itself.
    pub(super) fn trained(self, text: &str) -> String {
        let (open, close) = match self {
            Self::Colored => (GREEN, RESET),
            Self::Plain => ("⟦", "⟧"),
        };
        let mark = |line: &str| {
            if line.is_empty() {
                String::new()
            } else {
                format!("{open}{line}{close}")
            }
        };
        text.split('\n').map(mark).collect::<Vec<_>>().join("\n")
    }

    fn wrapped(self, code: &str, text: &str) -> String {
        match self {
            Self::Colored => format!("{code}{text}{RESET}"),
            Self::Plain => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_no_objection() {
        let choose = |wanted, no_color: Option<&str>, terminal| {
            Style::choose(wanted, no_color.map(OsStr::new), terminal)
        };
        assert_eq!(choose(Color::Auto, None, true), Style::Colored);
        assert_eq!(choose(Color::Auto, Some(""), true), Style::Colored);
        assert_eq!(choose(Color::Auto, Some("1"), true), Style::Plain);
        assert_eq!(choose(Color::Auto, None, false), Style::Plain);
        assert_eq!(choose(Color::Always, Some("1"), false), Style::Colored);
        assert_eq!(choose(Color::Never, None, true), Style::Plain);
    }

    #[test]
    fn trained_text_is_marked_on_every_line() {
        assert_eq!(Style::Plain.trained("a\n\nb"), "⟦a⟧\n\n⟦b⟧");
        assert_eq!(Style::Colored.trained("a"), "\u{1b}[32ma\u{1b}[0m");
    }
}
