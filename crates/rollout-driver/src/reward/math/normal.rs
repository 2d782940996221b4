//! Two normal forms of a final answer.
//!
//! [`surface`] is the one that the MATH data set is graded with: spelling of fractions and roots, units on the right, degrees,
//! percent and dollar signs, `x =` in front. [`plain`] goes further: LaTeX becomes text, units and case go, whole numbers are written
//! in one way. The rules are those of the graders that Miles ships; both forms are only ever compared with another of their kind.

use std::sync::LazyLock;

use regex::Regex;

use super::latex;
use super::rational::Rational;

/// Units that [`plain`] drops, with plural and power, in this order.
const UNITS: [&str; 16] = [
    "degree",
    "cm",
    "centimeter",
    "meter",
    "mile",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "year",
    "foot",
    "feet",
    "inch",
    "yard",
];

static UNIT_PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    UNITS
        .iter()
        .map(|unit| pattern(&format!(r"{unit}(es)?s? *(\^[0-9]+)?")))
        .collect()
});
static DEGREES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\^ *\\circ"));
static THIN_COMMA: LazyLock<Regex> = LazyLock::new(|| pattern(r",\\! *"));
static AFTER_MINUS: LazyLock<Regex> = LazyLock::new(|| pattern("- *"));
static NEGATIVE_MIXED: LazyLock<Regex> = LazyLock::new(|| pattern("^-([0-9]+) +([0-9]+/[0-9]+)$"));
static MIXED: LazyLock<Regex> = LazyLock::new(|| pattern("([0-9]) +([0-9])"));

#[expect(
    clippy::expect_used,
    reason = "the patterns are literals, and every one is used by a test"
)]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// The MATH form. An answer that the rules cannot take apart stays as it is, without spaces around it.
pub(super) fn surface(answer: &str) -> String {
    let answer = inside_text(answer.trim()).map_or(answer.trim(), str::trim);
    surface_rules(answer).unwrap_or_else(|| answer.to_owned())
}

fn surface_rules(answer: &str) -> Option<String> {
    let mut text = answer
        .replace('\n', "")
        .replace(r"\!", "")
        .replace(r"\\", r"\");
    text = text.replace("tfrac", "frac").replace("dfrac", "frac");
    for dropped in [r"\left", r"\right", r"^{\circ}", r"^\circ", r"\$"] {
        text = text.replace(dropped, "");
    }
    text = without_unit(&text)?
        .replace(r"\%", "")
        .replace(" .", " 0.")
        .replace("{.", "{0.");
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    let value = match text.split_once('=') {
        Some((name, value)) if name.chars().count() <= 2 && !value.contains('=') => value,
        _ => &text,
    };
    text = braced_roots(value)?.replace(' ', "");
    text = braced_fractions(&text)?;
    if text == "0.5" {
        return Some(r"\frac{1}{2}".to_owned());
    }
    Some(slash_fraction(&text).unwrap_or(text))
}

/// `\text{...}` around all of it.
fn inside_text(answer: &str) -> Option<&str> {
    let inside = answer.strip_prefix(r"\text{")?.strip_suffix('}')?;
    (!inside.is_empty() && !inside.contains('\n')).then_some(inside)
}

/// `\text{ ` only ever starts a unit; two of them are something else.
fn without_unit(text: &str) -> Option<&str> {
    let mut parts = text.split(r"\text{ ");
    let (value, _unit) = (parts.next()?, parts.next());
    parts.next().is_none().then_some(value)
}

/// `\sqrt3` is `\sqrt{3}`.
fn braced_roots(text: &str) -> Option<String> {
    let mut parts = text.split(r"\sqrt");
    let mut braced = parts.next()?.to_owned();
    for part in parts {
        let first = part.chars().next()?;
        braced.push_str(r"\sqrt");
        if first == '{' {
            braced.push_str(part);
        } else {
            push_braced(&mut braced, first);
            braced.push_str(&part[first.len_utf8()..]);
        }
    }
    Some(braced)
}

/// `\frac12` and `\frac1{2}` are `\frac{1}{2}`.
fn braced_fractions(text: &str) -> Option<String> {
    let mut parts = text.split(r"\frac");
    let mut braced = parts.next()?.to_owned();
    for part in parts {
        let mut signs = part.chars();
        let numerator = signs.next()?;
        braced.push_str(r"\frac");
        if numerator == '{' {
            braced.push_str(part);
            continue;
        }
        let Some(denominator) = signs.next() else {
            return Some(text.to_owned());
        };
        push_braced(&mut braced, numerator);
        if denominator == '{' {
            braced.push('{');
        } else {
            push_braced(&mut braced, denominator);
        }
        braced.push_str(signs.as_str());
    }
    Some(braced)
}

fn push_braced(text: &mut String, sign: char) {
    text.extend(['{', sign, '}']);
}

/// `3/4` is `\frac{3}{4}` when both are whole numbers in their usual spelling.
fn slash_fraction(text: &str) -> Option<String> {
    let usual = |number: &str| {
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number && (!digits.starts_with('0') || number == "0")
    };
    let (numerator, denominator) = text.split_once('/')?;
    (usual(numerator) && usual(denominator))
        .then(|| format!(r"\frac{{{numerator}}}{{{denominator}}}"))
}

/// The plain form.
pub(super) fn plain(answer: &str) -> String {
    let mut text = inside_text(answer)
        .unwrap_or(answer)
        .replace(r"\%", "%")
        .replace(r"\$", "$");
    text = text
        .replace(['$', '%'], "")
        .replace(" or ", " , ")
        .replace(" and ", " , ");
    for (word, factor) in [
        ("million", "*10^6"),
        ("billion", "*10^9"),
        ("trillion", "*10^12"),
    ] {
        text = text.replace(word, factor);
    }
    for unit in UNIT_PATTERNS.iter() {
        text = unit.replace_all(&text, "").into_owned();
    }
    text = DEGREES.replace_all(&text, "").into_owned();
    let inside = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    text = THIN_COMMA
        .replace_all(inside.unwrap_or(&text), "")
        .into_owned();
    text = whole_number(text.trim()).unwrap_or(text);
    if text.contains('\\') {
        text = latex::plain_text(&text).unwrap_or(text);
    }
    text = AFTER_MINUS.replace_all(text.trim(), "-").into_owned();
    text = NEGATIVE_MIXED.replace(&text, "-(${1}+${2})").into_owned();
    text = MIXED.replace_all(&text, "${1}+${2}").into_owned();
    text = text.replace([' ', '{', '}'], "").to_lowercase();
    whole_number(&without_thousands_commas(&text)).unwrap_or(text)
}

/// The usual spelling of a number that is whole, or within 1e-7 of it.
pub(super) fn whole_number(text: &str) -> Option<String> {
    if let Some(number) = Rational::decimal(text) {
        return number.near_integer().map(|whole| whole.to_string());
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Too long for 128 bits: the digits are the number.
    let sign = if text.starts_with('-') { "-" } else { "" };
    Some(format!("{sign}{}", digits.trim_start_matches('0')))
}

/// `1,234,567` is `1234567`; the commas of `1,23` or `(1,2)` stay.
pub(super) fn without_thousands_commas(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let separates = |at: usize| {
        at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4)
    };
    text.char_indices()
        .filter(|(at, sign)| !(*sign == ',' && separates(*at)))
        .map(|(_, sign)| sign)
        .collect()
}
