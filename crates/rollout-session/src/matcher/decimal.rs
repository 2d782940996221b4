//! Numbers: as Python's `json` reads and compares them, and as exact decimals.

use std::cmp::Ordering;

/// Largest exponent of a first digit, and smallest of a last one, that Python's `Decimal` takes.
const LARGEST: i128 = 999_999_999_999_999_999;
const SMALLEST: i128 = -1_999_999_999_999_999_997;

/// A scalar that takes part in Python's arithmetic: `true` is 1.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PythonNumber<'a> {
    /// Digits with a sign in front, of any length.
    Integer(&'a str),
    Float(f64),
}

impl<'a> PythonNumber<'a> {
    fn read(raw: &'a str) -> Self {
        match raw {
            "true" => Self::Integer("1"),
            "false" | "-0" => Self::Integer("0"),
            number if is_integer(number) => Self::Integer(number),
            // Too large a number is infinite, there as here.
            number => Self::Float(number.parse().unwrap_or(f64::NAN)),
        }
    }
}

/// Whether a number is written without fraction and exponent.
pub(super) fn is_integer(raw: &str) -> bool {
    !raw.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}

/// Python's `==` of two numbers or truth values.
#[expect(clippy::float_cmp, reason = "Python compares floats exactly")]
pub(super) fn python_equal(left: &str, right: &str) -> bool {
    match (PythonNumber::read(left), PythonNumber::read(right)) {
        (PythonNumber::Integer(left), PythonNumber::Integer(right)) => left == right,
        (PythonNumber::Float(left), PythonNumber::Float(right)) => left == right,
        (PythonNumber::Integer(integer), PythonNumber::Float(float))
        | (PythonNumber::Float(float), PythonNumber::Integer(integer)) => {
            is_exactly(float, integer)
        }
    }
}

/// Whether a float has exactly this integer value.
fn is_exactly(float: f64, integer: &str) -> bool {
    if !float.is_finite() || float.fract() != 0.0 {
        return false;
    }
    // All digits of a float are written out, however large it is.
    let written = format!("{float:.0}");
    let written = if written == "-0" { "0" } else { &written };
    written == integer
}

/// A number as sign, digits and exponent, without zeros at either end: equal numbers have equal parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i128,
}

impl Decimal {
    /// Reads a JSON number exactly. `None` where Python's `Decimal` cannot hold it.
    pub(super) fn exact(raw: &str) -> Option<Self> {
        let (negative, rest) = match raw.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, raw),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i128>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let places = i128::try_from(fraction.len()).ok()?;
        let mut exponent = exponent.checked_sub(places)?;
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let length = i128::try_from(digits.len().max(1)).ok()?;
        if exponent < SMALLEST
            || exponent.checked_add(length - 1)?.cmp(&LARGEST) == Ordering::Greater
        {
            return None;
        }
        let significant = digits.trim_end_matches('0');
        exponent += i128::try_from(digits.len() - significant.len()).ok()?;
        if significant.is_empty() {
            return Some(Self {
                negative: false,
                digits: String::new(),
                exponent: 0,
            });
        }
        Some(Self {
            negative,
            digits: significant.to_owned(),
            exponent,
        })
    }

    /// Reads a JSON number as Python keeps it: integers exactly, floats by their shortest text. `None` when it is infinite there.
    pub(super) fn as_parsed(raw: &str) -> Option<Self> {
        if is_integer(raw) {
            return Self::exact(raw);
        }
        let float: f64 = raw.parse().ok()?;
        if !float.is_finite() {
            return None;
        }
        Self::exact(&format!("{float:e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_compares_numbers_by_value() {
        for (left, right) in [
            ("1", "1.0"),
            ("1", "true"),
            ("0.0", "false"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1e2", "100"),
            ("1e999", "2e999"),
            ("9007199254740993.0", "9007199254740992"),
            ("1000000000000000019884624838656", "1e30"),
            ("0.1", "0.10000000000000000555"),
        ] {
            assert!(python_equal(left, right), "{left} {right}");
            assert!(python_equal(right, left), "{right} {left}");
        }
        for (left, right) in [
            ("9007199254740993", "9007199254740992.0"),
            ("1000000000000000000000000000000", "1e30"),
            ("1e999", "-1e999"),
            ("1e999", "1"),
            ("2", "true"),
            ("0.5", "0"),
        ] {
            assert!(!python_equal(left, right), "{left} {right}");
            assert!(!python_equal(right, left), "{right} {left}");
        }
    }

    #[test]
    fn decimals_are_exact() {
        let same = |left, right| Decimal::exact(left).unwrap() == Decimal::exact(right).unwrap();
        for (left, right) in [
            ("1", "1.0"),
            ("1", "1e0"),
            ("100", "1E+2"),
            ("0", "-0.00e5"),
            ("0.1", "1e-1"),
        ] {
            assert!(same(left, right), "{left} {right}");
        }
        for (left, right) in [
            ("1", "-1"),
            ("0.1", "0.10000000000000000555"),
            ("10", "1"),
            ("1e2", "1e3"),
        ] {
            assert!(!same(left, right), "{left} {right}");
        }
    }

    #[test]
    fn a_number_beyond_decimals_is_none() {
        for fits in ["1e999999999999999999", "1e-1000000000000000018", "0e3"] {
            assert!(Decimal::exact(fits).is_some(), "{fits}");
        }
        for beyond in [
            "1e1000000000000000000",
            "0e99999999999999999999",
            "1e-99999999999999999999",
            "1e99999999999999999999999999999999999999999999",
        ] {
            assert_eq!(Decimal::exact(beyond), None, "{beyond}");
        }
        assert_eq!(Decimal::as_parsed("1e999"), None);
        assert_eq!(
            Decimal::as_parsed("0.1000000000000000055"),
            Decimal::exact("0.1")
        );
        assert_eq!(
            Decimal::as_parsed("1e22"),
            Decimal::exact("10000000000000000000000")
        );
    }
}
