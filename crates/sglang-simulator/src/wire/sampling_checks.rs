//! Checks of `sampling_params`, in SGLang's order and words (`sampling_params.py` of 0.5.23).
//!
//! Some nonsense ends in an exception that nobody catches there, and so in a 500; it does here, too.

use regex::Regex;
use regex_syntax::ast::ErrorKind;
use serde_json::Number;

use super::python;
use super::sampling::{OneOrMany, SamplingParams, Watermark, float};

const MOST_STOPS: usize = 32;
const LONGEST_STOP_REGEX: usize = 256;

/// Most samples of one request.
const MAX_SAMPLES: i64 = 4096;

/// Why parameters are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A value is wrong, which is a 400.
    Value(String),
    /// SGLang fails at it, which is a 500.
    Uncaught(String),
}

fn value(message: impl Into<String>) -> Refused {
    Refused::Value(message.into())
}

impl SamplingParams {
    /// Checks values.
    pub(crate) fn verify(&self, vocab_size: usize) -> Result<(), Refused> {
        if self.choice.is_some() {
            let message = "Unexpected keyword argument 'choice'";
            return Err(Refused::Uncaught(message.into()));
        }
        if let Some(watermark) = &self.watermark {
            watermark.verify_shape()?;
        }
        self.verify_stops()?;
        if let Some(width) = self.beam_width.filter(|width| *width < 1) {
            return Err(value(format!(
                "beam_width must be at least 1, got {width}."
            )));
        }
        self.verify_probabilities()?;
        self.verify_counts()?;
        for token in self.logit_bias.iter().flatten().map(|(token, _)| token) {
            let Some(id) = python_int(token) else {
                let shown = python::repr_str(token);
                return Err(value(format!(
                    "invalid literal for int() with base 10: {shown}"
                )));
            };
            if usize::try_from(id).map_or(true, |id| id >= vocab_size) {
                let last = vocab_size - 1;
                return Err(value(format!(
                    "logit_bias must has keys in [0, {last}], got {token}."
                )));
            }
        }
        if let Some(seed) = self.sampling_seed.as_ref().filter(|seed| !seed.is_i64()) {
            return Err(value(format!(
                "sampling_seed must be in [-2**63, 2**63 - 1], got {seed}."
            )));
        }
        self.verify_grammar()?;
        match &self.watermark {
            Some(watermark) => Err(watermark.refusal()),
            None => Ok(()),
        }
    }

    fn verify_stops(&self) -> Result<(), Refused> {
        let texts =
            |texts: &'_ Option<OneOrMany>| texts.as_ref().map_or(0, |texts| texts.as_slice().len());
        let count = texts(&self.stop);
        if count > MOST_STOPS {
            return Err(value(format!(
                "at most {MOST_STOPS} stop strings are allowed, got {count}"
            )));
        }
        let count = texts(&self.stop_regex);
        if count > MOST_STOPS {
            return Err(value(format!(
                "at most {MOST_STOPS} stop_regex patterns are allowed, got {count}"
            )));
        }
        for pattern in self.stop_regex.iter().flat_map(OneOrMany::as_slice) {
            let length = pattern.len();
            if length > LONGEST_STOP_REGEX {
                return Err(value(format!(
                    "stop_regex is {length} bytes, over the {LONGEST_STOP_REGEX}-byte limit"
                )));
            }
            python_regex(pattern)?;
        }
        Ok(())
    }

    fn verify_probabilities(&self) -> Result<(), Refused> {
        let shown = |number: &Option<Number>| {
            let number = number.as_ref();
            number.map_or_else(String::new, python::repr_number)
        };
        let checks = [
            (
                &self.temperature,
                float(self.temperature.as_ref(), 1.0) >= 0.0,
                "temperature must be a non-negative finite number",
            ),
            (
                &self.top_p,
                (f64::MIN_POSITIVE..=1.0).contains(&float(self.top_p.as_ref(), 1.0)),
                "top_p must be in (0, 1]",
            ),
            (
                &self.min_p,
                (0.0..=1.0).contains(&float(self.min_p.as_ref(), 0.0)),
                "min_p must be in [0, 1]",
            ),
        ];
        for (number, fits, rule) in checks {
            if !fits {
                return Err(value(format!("{rule}, got {}.", shown(number))));
            }
        }
        if let Some(top_k) = self.top_k.filter(|top_k| *top_k < 1 && *top_k != -1) {
            return Err(value(format!(
                "top_k must be -1 (disable) or at least 1, got {top_k}."
            )));
        }
        for (name, number) in [
            ("frequency_penalty", &self.frequency_penalty),
            ("presence_penalty", &self.presence_penalty),
        ] {
            if !(-2.0..=2.0).contains(&float(number.as_ref(), 0.0)) {
                return Err(value(format!(
                    "{name} must be in [-2, 2], got {}.",
                    shown(number)
                )));
            }
        }
        let repetition = float(self.repetition_penalty.as_ref(), 1.0);
        if repetition <= 0.0 || repetition > 2.0 {
            let got = shown(&self.repetition_penalty);
            return Err(value(format!(
                "repetition_penalty must be in (0, 2] (1.0 = no penalty), got {got}."
            )));
        }
        Ok(())
    }

    fn verify_counts(&self) -> Result<(), Refused> {
        let least = self.min_new_tokens.unwrap_or(0);
        if least < 0 {
            return Err(value(format!(
                "min_new_tokens must be in [0, max_new_tokens], got {least}."
            )));
        }
        if let Some(n) = self.n.filter(|n| *n > MAX_SAMPLES) {
            return Err(value(format!(
                "the simulated engine gives at most {MAX_SAMPLES} samples, got n={n}."
            )));
        }
        match self.max_new_tokens {
            Some(most) if most < 0 => Err(value(format!(
                "max_new_tokens must be at least 0, got {most}."
            ))),
            Some(most) if least > most => Err(value(format!(
                "min_new_tokens must be in [0, max_new_tokens({most})], got {least}."
            ))),
            _ => Ok(()),
        }
    }

    fn verify_grammar(&self) -> Result<(), Refused> {
        let is_set =
            |grammar: &Option<String>| grammar.as_ref().is_some_and(|text| !text.is_empty());
        let grammars = [
            is_set(&self.json_schema),
            is_set(&self.regex),
            is_set(&self.ebnf),
            is_set(&self.structural_tag),
        ];
        if grammars.iter().filter(|given| **given).count() > 1 {
            return Err(value(
                "Only one of json_schema, regex, ebnf, or structural_tag can be set.",
            ));
        }
        let unsupported = [
            ("structural_tag", is_set(&self.structural_tag)),
            ("beam_width", self.beam_width.is_some_and(|width| width > 1)),
        ];
        match unsupported.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(value(format!(
                "the simulated engine does not support {name}."
            ))),
            None => Ok(()),
        }
    }
}

impl Watermark {
    fn verify_shape(&self) -> Result<(), Refused> {
        match self.context_window {
            Some(window) if window < 1 => {
                Err(value("watermark context_window must be a positive integer"))
            }
            _ => Ok(()),
        }
    }

    /// What a server that makes no watermarks says.
    fn refusal(&self) -> Refused {
        match (self.enabled, &self.key) {
            (Some(false), Some(_)) => {
                value("request watermark key cannot be combined with enabled=false")
            }
            (Some(false), None) => value("the simulated engine does not support watermark."),
            (None, None) => value("request watermark must set enabled or key"),
            _ => value("request watermarking requires the server to enable --enable-watermark"),
        }
    }
}

/// A regular expression of Python's: a brace that begins no repetition is a character there.
pub(super) fn python_regex(pattern: &str) -> Result<Regex, Refused> {
    let mut readable = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find(['\\', '{']) {
        let (before, from) = rest.split_at(at);
        readable.push_str(before);
        let taken = if let Some(escaped) = from.strip_prefix('\\') {
            // the escaped character belongs to it
            1 + escaped.chars().next().map_or(0, char::len_utf8)
        } else {
            if !is_repetition(from) {
                readable.push('\\');
            }
            1
        };
        readable.push_str(&from[..taken]);
        rest = &from[taken..];
    }
    readable.push_str(rest);
    Regex::new(&readable).map_err(|_| refused_pattern(pattern, &readable))
}

fn is_repetition(text: &str) -> bool {
    let inside = text[1..].split_once('}').map(|(inside, _)| inside);
    inside.is_some_and(|inside| {
        let parts: Vec<_> = inside.split(',').collect();
        let are_digits = parts
            .iter()
            .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        are_digits && parts.len() <= 2 && !parts[0].is_empty()
    })
}

/// What is no expression to anyone fails in Python; what only Python knows is not simulated.
fn refused_pattern(pattern: &str, readable: &str) -> Refused {
    let parsed = regex_syntax::ast::parse::Parser::new().parse(readable);
    let is_nonsense = parsed.is_err_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::ClassUnclosed
                | ErrorKind::ClassRangeInvalid
                | ErrorKind::EscapeUnexpectedEof
                | ErrorKind::GroupUnclosed
                | ErrorKind::GroupUnopened
                | ErrorKind::RepetitionMissing
                | ErrorKind::RepetitionCountInvalid
        )
    });
    let shown = python::repr_str(pattern);
    if is_nonsense {
        Refused::Uncaught(format!("stop_regex {shown} is no regular expression"))
    } else {
        value(format!(
            "the simulated engine does not support the stop_regex {shown}."
        ))
    }
}

/// A text as `int()` reads it.
pub(super) fn python_int(text: &str) -> Option<i64> {
    let text = text.trim();
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let mut number: i64 = 0;
    for part in digits.split('_') {
        if part.is_empty() {
            return None;
        }
        for digit in part.chars() {
            let digit = i64::from(digit.to_digit(10)?);
            number = number.saturating_mul(10).saturating_add(digit);
        }
    }
    Some(sign * number)
}

#[cfg(test)]
mod tests {
    use super::super::sampling::parsed;
    use super::*;

    fn refused(json: &str) -> Refused {
        parsed(json).verify(448).expect_err(json)
    }

    #[test]
    fn numbers_are_read_as_python_reads_them() {
        for (text, number) in [
            ("7", Some(7)),
            (" -3 ", Some(-3)),
            ("1_0", Some(10)),
            ("+5", Some(5)),
        ] {
            assert_eq!(python_int(text), number, "{text}");
        }
        for text in ["", "a", "1.0", "_1", "1__0", "-", "0x1"] {
            assert_eq!(python_int(text), None, "{text}");
        }
    }

    #[test]
    fn patterns_of_python_and_no_patterns_differ() {
        for python in ["(?=a)b", r"(a)\\1", r"(?<!x)y"] {
            let params = format!(r#"{{"stop_regex": "{python}"}}"#);
            assert!(matches!(refused(&params), Refused::Value(_)), "{python}");
        }
        for nonsense in ["[", "(", ")", "*a", "a{3,1}", "[b-a]"] {
            let params = format!(r#"{{"stop_regex": "{nonsense}"}}"#);
            assert!(
                matches!(refused(&params), Refused::Uncaught(_)),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn a_brace_may_be_a_character() {
        for (pattern, text) in [
            ("{", "{"),
            ("a{b", "a{b"),
            (r"\{x", "{x"),
            ("{a}{2}", "{a}}"),
            ("a{2}", "aa"),
            ("a{,2}b", "a{,2}b"),
        ] {
            assert!(python_regex(pattern).unwrap().is_match(text), "{pattern}");
        }
    }
}
