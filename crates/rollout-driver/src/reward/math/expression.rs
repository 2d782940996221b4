//! The value of an arithmetic expression: numbers, `+ - * / ^`, parentheses, a product without a sign as in `2(3)`.
//!
//! Guarantee: exact, or `None`; time and memory are linear in the text, and the depth of parentheses is bounded. An exponent is one
//! digit, with a sign or without: towers and long exponents are not evaluated.

use super::rational::Rational;

const MAX_BYTES: usize = 512;
const MAX_DEPTH: usize = 32;

/// The value of `text`, when it is an expression of numbers only.
pub(super) fn evaluate(text: &str) -> Option<Rational> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut parser = Parser {
        rest: text.as_bytes(),
        depth: 0,
    };
    let value = parser.sum()?;
    parser.rest.is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn sum(&mut self) -> Option<Rational> {
        let mut value = self.product()?;
        loop {
            if self.take(b'+') {
                value = value.checked_add(self.product()?)?;
            } else if self.take(b'-') {
                value = value.checked_sub(self.product()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<Rational> {
        let mut value = self.signed()?;
        loop {
            if self.take(b'*') {
                value = value.checked_mul(self.signed()?)?;
            } else if self.take(b'/') {
                value = value.checked_div(self.signed()?)?;
            } else if self.peek() == Some(b'(') {
                value = value.checked_mul(self.power()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn signed(&mut self) -> Option<Rational> {
        let mut negative = false;
        loop {
            if self.take(b'-') {
                negative = !negative;
            } else if !self.take(b'+') {
                break;
            }
        }
        let value = self.power()?;
        if negative {
            value.checked_neg()
        } else {
            Some(value)
        }
    }

    fn power(&mut self) -> Option<Rational> {
        let base = self.atom()?;
        if !self.take(b'^') {
            return Some(base);
        }
        let negative = self.take(b'-');
        let digit = self.peek().filter(u8::is_ascii_digit)?;
        self.rest = &self.rest[1..];
        if self
            .peek()
            .is_some_and(|next| next.is_ascii_digit() || next == b'^' || next == b'.')
        {
            return None;
        }
        let exponent = i32::from(digit - b'0');
        base.checked_pow(if negative { -exponent } else { exponent })
    }

    fn atom(&mut self) -> Option<Rational> {
        if self.take(b'(') {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return None;
            }
            let value = self.sum()?;
            self.depth -= 1;
            return self.take(b')').then_some(value);
        }
        let length = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit() || **byte == b'.')
            .count();
        let (number, rest) = self.rest.split_at(length);
        self.rest = rest;
        Rational::decimal(std::str::from_utf8(number).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> Option<Rational> {
        evaluate(text)
    }

    #[test]
    fn expressions_have_their_usual_value() {
        let is = |text: &str, numerator, denominator| {
            assert_eq!(value(text), Rational::new(numerator, denominator), "{text}");
        };
        is("1+1/2", 3, 2);
        is("-(1+1/2)", -3, 2);
        is("2(3)(4)", 24, 1);
        is("(1)/(2)", 1, 2);
        is("3*10^6", 3_000_000, 1);
        is("10^-2", 1, 100);
        is("-2^2", -4, 1);
        is("1/2/2", 1, 4);
        is("2--3", 5, 1);
        is(".5*4", 2, 1);
    }

    #[test]
    fn what_is_no_number_has_no_value() {
        for text in [
            "", "x", "2x", "1/0", "(1", "1)", "1+", "2^10", "2^3^2", "2^(3)", "1 2", "sqrt(4)",
            "1,2", "9^9^9",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value(&"(".repeat(500)), None);
        assert_eq!(value(&"1+".repeat(400)), None);
        assert_eq!(value(&"9^9*".repeat(100)), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[-+*/^().0-9x]{0,80}") {
            let _ = value(&text);
        }
    }
}
