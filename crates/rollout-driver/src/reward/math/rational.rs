//! Exact fractions of 128-bit integers. Whatever does not fit is no number here, and is compared as text.

use std::cmp::Ordering;

/// A reduced fraction with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    pub(super) fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let divisor =
            i128::try_from(gcd(numerator.unsigned_abs(), denominator.unsigned_abs())).ok()?;
        let sign = denominator.signum();
        Some(Self {
            numerator: (numerator / divisor).checked_mul(sign)?,
            denominator: (denominator / divisor).checked_mul(sign)?,
        })
    }

    pub(super) fn integer(number: i128) -> Self {
        Self {
            numerator: number,
            denominator: 1,
        }
    }

    /// A decimal such as `-1.50`, `.5`, `3.` or `2e-3`.
    pub(super) fn decimal(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let magnitude = Self::integer(digits.parse().ok()?);
        let places = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let scaled = magnitude.checked_mul(Self::integer(10).checked_pow(places)?)?;
        if mantissa.starts_with('-') {
            scaled.checked_neg()
        } else {
            Some(scaled)
        }
    }

    /// The nearest integer, when it is less than 1e-7 away.
    pub(super) fn near_integer(self) -> Option<i128> {
        const TOLERANCE: i128 = 10_000_000;
        let twice = self
            .numerator
            .checked_mul(2)?
            .checked_add(self.denominator)?;
        let nearest = twice.div_euclid(self.denominator.checked_mul(2)?);
        let distance = self.checked_sub(Self::integer(nearest))?;
        let scaled = distance.numerator.abs().checked_mul(TOLERANCE)?;
        (scaled < distance.denominator).then_some(nearest)
    }

    pub(super) fn checked_neg(self) -> Option<Self> {
        Some(Self {
            numerator: self.numerator.checked_neg()?,
            ..self
        })
    }

    pub(super) fn checked_add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(
            left.checked_add(right)?,
            self.denominator.checked_mul(other.denominator)?,
        )
    }

    pub(super) fn checked_sub(self, other: Self) -> Option<Self> {
        self.checked_add(other.checked_neg()?)
    }

    pub(super) fn checked_mul(self, other: Self) -> Option<Self> {
        let numerator = self.numerator.checked_mul(other.numerator)?;
        Self::new(numerator, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn checked_div(self, other: Self) -> Option<Self> {
        let numerator = self.numerator.checked_mul(other.denominator)?;
        Self::new(numerator, self.denominator.checked_mul(other.numerator)?)
    }

    /// `self` to an integer power; a negative power of zero is no number.
    pub(super) fn checked_pow(self, exponent: i32) -> Option<Self> {
        let times = exponent.unsigned_abs();
        let (numerator, denominator) = (
            self.numerator.checked_pow(times)?,
            self.denominator.checked_pow(times)?,
        );
        match exponent.cmp(&0) {
            Ordering::Less => Self::new(denominator, numerator),
            _ => Self::new(numerator, denominator),
        }
    }
}

fn gcd(mut left: u128, mut right: u128) -> u128 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fraction(numerator: i128, denominator: i128) -> Option<Rational> {
        Rational::new(numerator, denominator)
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(Rational::decimal("-1.50"), fraction(-3, 2));
        assert_eq!(Rational::decimal(".5"), fraction(1, 2));
        assert_eq!(Rational::decimal("3."), fraction(3, 1));
        assert_eq!(Rational::decimal("2e-3"), fraction(1, 500));
        assert_eq!(Rational::decimal("1.5E3"), fraction(1500, 1));
        for text in [
            "",
            ".",
            "-",
            "1.2.3",
            "--1",
            "1e",
            "0x10",
            "inf",
            "1_000",
            "1e99999999999",
            "e5",
        ] {
            assert_eq!(Rational::decimal(text), None, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_no_number() {
        assert_eq!(Rational::decimal(&"9".repeat(40)), None);
        assert_eq!(Rational::decimal("1e2000000000"), None);
        assert_eq!(fraction(1, 0), None);
        assert_eq!(Rational::integer(0).checked_pow(-1), None);
        assert_eq!(
            Rational::integer(i128::MAX).checked_add(Rational::integer(1)),
            None
        );
    }

    #[test]
    fn near_integers_are_within_a_ten_millionth() {
        let near = |text| Rational::decimal(text).and_then(Rational::near_integer);
        assert_eq!(near("3.00000001"), Some(3));
        assert_eq!(near("-2.99999999"), Some(-3));
        assert_eq!(near("3.0000001"), None);
        assert_eq!(near("0.5"), None);
    }

    proptest! {
        #[test]
        fn arithmetic_keeps_its_laws(a in -999_i128..999, b in 1_i128..999, c in -999_i128..999, d in 1_i128..999) {
            let (left, right) = (fraction(a, b).unwrap(), fraction(c, d).unwrap());
            prop_assert_eq!(left.checked_add(right), right.checked_add(left));
            prop_assert_eq!(left.checked_add(right).unwrap().checked_sub(right), Some(left));
            if c != 0 {
                prop_assert_eq!(left.checked_mul(right).unwrap().checked_div(right), Some(left));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+0-9.e]{0,60}") {
            let _ = Rational::decimal(&text).and_then(Rational::near_integer);
        }
    }
}
