//! The parser. Strings are `serde_json`'s, the rest is here.

use indexmap::IndexMap;

use super::{Json, Number};

const MAX_DEPTH: usize = 128;

/// What is wrong with the JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {offset}")]
pub struct ParseError {
    /// What is wrong.
    pub problem: String,
    /// Offset in bytes from the start of the text.
    pub offset: usize,
}

type Result<T> = std::result::Result<T, ParseError>;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

pub(super) fn parse(text: &str) -> Result<Json> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return parser.wrong("expected the end");
    }
    Ok(value)
}

impl Parser<'_> {
    fn wrong<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(ParseError {
            problem: problem.into(),
            offset: self.at,
        })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, expected: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(expected);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > MAX_DEPTH {
            return self.wrong(format!("more than {MAX_DEPTH} levels of nesting"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(|text| Json::String(text.into())),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in [
                    ("null", Json::Null),
                    ("true", Json::Bool(true)),
                    ("false", Json::Bool(false)),
                ] {
                    if self.rest().starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                self.wrong("expected a value")
            }
        }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut fields = IndexMap::new();
        if self.take(b'}') {
            return Ok(Json::Object(fields));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return self.wrong("expected a key");
            }
            let key = self.string()?;
            if !self.take(b':') {
                return self.wrong("expected ':'");
            }
            let value = self.value(depth + 1)?;
            fields.insert(key.into(), value);
            if self.take(b',') {
                continue;
            }
            if self.take(b'}') {
                return Ok(Json::Object(fields));
            }
            return self.wrong("expected ',' or '}'");
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b',') {
                continue;
            }
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            return self.wrong("expected ',' or ']'");
        }
    }

    fn string(&mut self) -> Result<String> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        let mut plain = true;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    end += 2;
                }
                Some(byte) => {
                    plain &= *byte >= b' ';
                    end += 1;
                }
                None => return self.wrong("a string without an end"),
            }
        }
        self.at = end + 1;
        if plain {
            return Ok(self.text.get(start + 1..end).unwrap_or_default().to_owned());
        }
        serde_json::from_str(self.text.get(start..=end).unwrap_or_default()).map_err(|error| {
            ParseError {
                problem: error.to_string(),
                offset: start,
            }
        })
    }

    fn number(&mut self) -> Result<Json> {
        let rest = self.rest();
        let length = rest
            .find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        let token = &rest[..length];
        match Number::of_token(token).filter(|_| follows_grammar(token)) {
            Some(number) => {
                self.at += length;
                Ok(Json::Number(number))
            }
            None => self.wrong("a malformed number"),
        }
    }
}

/// Rust reads more than JSON allows: leading zeros, a point without digits on both sides.
fn follows_grammar(token: &str) -> bool {
    let mantissa = token.split(['e', 'E']).next().unwrap_or_default();
    let (whole, fraction) = mantissa
        .split_once('.')
        .map_or((mantissa, None), |(whole, fraction)| {
            (whole, Some(fraction))
        });
    let whole = whole.strip_prefix('-').unwrap_or(whole);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && (whole == "0" || !whole.starts_with('0')) && fraction.is_none_or(digits)
}
