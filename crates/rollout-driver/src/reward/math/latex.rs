//! LaTeX as plain text: `\frac{3}{4}` is `3/4`, `\sqrt{2}` is `sqrt(2)`, `\text{yes}` is `yes`.
//!
//! Only what final answers are made of. A command that is not known gives its argument, or without one its name, so that two
//! spellings with the same command stay comparable. Braces that do not match, or nesting deeper than any answer, give `None`: the text is then compared as it is.

use std::iter::Peekable;
use std::str::Chars;

const MAX_DEPTH: usize = 32;

/// The plain text of a LaTeX answer.
pub(super) fn plain_text(latex: &str) -> Option<String> {
    let mut reader = Reader {
        rest: latex.chars().peekable(),
        depth: 0,
    };
    let mut text = String::with_capacity(latex.len());
    while reader.rest.peek().is_some() {
        if reader.rest.peek() == Some(&'}') {
            return None;
        }
        text.push_str(&reader.piece()?);
    }
    Some(text.trim().to_owned())
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    depth: usize,
}

impl Reader<'_> {
    /// One character, group or command with its arguments.
    fn piece(&mut self) -> Option<String> {
        match self.rest.next()? {
            '{' => self.group(),
            '\\' => self.command(),
            '^' => Some(format!("^{}", operand(&self.argument()?))),
            '~' => Some(" ".to_owned()),
            other => Some(other.to_string()),
        }
    }

    /// The rest of a group whose opening brace was read.
    fn group(&mut self) -> Option<String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut text = String::new();
        while self.rest.peek()? != &'}' {
            text.push_str(&self.piece()?);
        }
        self.rest.next();
        self.depth -= 1;
        Some(text)
    }

    /// What a command takes: a group, or the next piece.
    fn argument(&mut self) -> Option<String> {
        while self.rest.next_if_eq(&' ').is_some() {}
        if self.rest.peek() == Some(&'}') {
            return None;
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let argument = self.piece();
        self.depth -= 1;
        argument
    }

    fn command(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some(letter) = self.rest.next_if(char::is_ascii_alphabetic) {
            name.push(letter);
        }
        if name.is_empty() {
            return Some(symbol(self.rest.next()?));
        }
        let text = match name.as_str() {
            "frac" | "dfrac" | "tfrac" | "cfrac" => {
                let (numerator, denominator) = (self.argument()?, self.argument()?);
                // The space tells a mixed number, `1\frac{1}{2}`, from eleven halves.
                return Some(format!(
                    " {}/{}",
                    operand(&numerator),
                    operand(&denominator)
                ));
            }
            "sqrt" => return Some(format!("{}({})", self.root()?, self.argument()?)),
            "left" | "right" | "big" | "Big" | "bigg" | "Bigg" | "displaystyle" | "limits" => "",
            "quad" | "qquad" => " ",
            "cdot" | "times" | "ast" => "*",
            "div" => "/",
            "infty" => "inf",
            "cup" => "U",
            "le" | "leq" => "<=",
            "ge" | "geq" => ">=",
            "ne" | "neq" => "!=",
            "degree" => "°",
            // What an unknown command does to its argument is not known; what it says is.
            _ if self.rest.peek() == Some(&'{') => "",
            other => other,
        };
        // `\pi x`: the space only ends the name.
        while self.rest.next_if_eq(&' ').is_some() {}
        Some(text.to_owned())
    }

    /// The name of a root; its `[3]` is read.
    fn root(&mut self) -> Option<String> {
        if self.rest.next_if_eq(&'[').is_none() {
            return Some("sqrt".to_owned());
        }
        let mut name = "root".to_owned();
        loop {
            match self.rest.next()? {
                ']' => return Some(name),
                other => name.push(other),
            }
        }
    }
}

/// Commands of one sign: spaces, line breaks, and escaped characters.
fn symbol(sign: char) -> String {
    match sign {
        ',' | ';' | ':' | ' ' | '\\' => " ".to_owned(),
        '!' | '(' | ')' | '[' | ']' => String::new(),
        other => other.to_string(),
    }
}

/// A part of a fraction or an exponent, in parentheses where it would be read differently without.
fn operand(text: &str) -> String {
    let text = text.trim();
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let is_one = unsigned
        .chars()
        .all(|c| c.is_alphanumeric() || c == '.' || c == ',')
        || (unsigned.ends_with(')')
            && unsigned.starts_with("sqrt(")
            && unsigned.matches('(').count() == 1);
    if is_one {
        text.to_owned()
    } else {
        format!("({text})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_read_as_text() {
        let is = |latex: &str, text: &str| {
            assert_eq!(plain_text(latex).as_deref(), Some(text), "{latex}");
        };
        is(r"\frac{3}{4}", "3/4");
        is(r"-\dfrac34", "- 3/4");
        is(r"1\tfrac{1}{2}", "1 1/2");
        is(r"\frac{x+1}{2}", "(x+1)/2");
        is(r"2\sqrt{3}", "2sqrt(3)");
        is(r"\sqrt[3]{2}", "root3(2)");
        is(r"\frac{\sqrt{3}}{2}", "sqrt(3)/2");
        is(r"\text{yes}", "yes");
        is(r"\left(1, 2\right)", "(1, 2)");
        is(r"3\cdot 10^{6}", "3*10^6");
        is(r"2^{n+1}", "2^(n+1)");
        is(r"[0, \infty)", "[0, inf)");
        is(r"5\ \text{cm}", "5 cm");
        is(r"\alpha", "alpha");
        is(r"\mathcal{O}", "O");
        is(r"50\%", "50%");
    }

    #[test]
    fn broken_latex_has_no_text() {
        for latex in [
            r"\frac{1}",
            r"\frac{1}{",
            "{1",
            "1}",
            r"\sqrt[3",
            r"\",
            r"\frac",
        ] {
            assert_eq!(plain_text(latex), None, "{latex}");
        }
        assert_eq!(plain_text(&"{".repeat(5000)), None);
        assert_eq!(plain_text(&r"\frac".repeat(5000)), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r"[\\{}a-z0-9^ \[\]frac]{0,120}") {
            let _ = plain_text(&text);
        }
    }
}
