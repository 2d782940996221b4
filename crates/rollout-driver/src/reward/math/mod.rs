//! The `Math` reward: is the last `\boxed{...}` of the response the label?
//!
//! **Inputs.** The response, and the label as text (its own box, when it has one, is the answer). **Result.** Right or wrong.
//!
//! **Rules** (those of the `math` type of Miles, whose graders come from the MATH and PRM800K projects). Two answers are equal when
//! their MATH forms are the same ([`normal::surface`]), or their plain forms are the same ([`normal::plain`]), or, element by element
//! of a tuple or interval with the same brackets: a fraction equals a fraction only in the same spelling; a whole number equals
//! nothing but a whole number; everything else is equal when both sides have the same value in exact rational arithmetic.
//!
//! **Left out.** Where Miles asks sympy, this grader only evaluates numbers. Answers with letters, roots or constants are equal only in
//! the same plain form: `x+1` and `1+x`, `\frac{1}{\sqrt{3}}` and `\frac{\sqrt{3}}{3}`, `2\pi` and `\pi\cdot2` are not found equal. Numbers beyond 128 bits are compared
//! as text. Who needs sympy's verdict runs the Python grader as a plug-in reward.
//!
//! **Better than the original.** A negative mixed number is one (`-1\frac{1}{2}` is -1.5); a label that is the number 0 can be
//! reached; `1,234,567,890` is a number; a sum in the numerator of a fraction stays a numerator.
//!
//! **Guarantees.** One pass over the response, bounded work on the answer whatever it says; nothing panics; no clock, no network.

mod boxed;
mod expression;
mod latex;
mod normal;
mod rational;
#[cfg(test)]
mod tests;

/// Answers longer than this are compared as they are, without normal forms.
const MAX_ANSWER_BYTES: usize = 4096;
const BRACKETS: &[char] = &['(', ')', '[', ']'];

/// What a label has to be graded against.
///
/// # Errors
/// What the label should be, when it is blank or has a box that does not close.
pub(super) fn expected_answer(label: &str) -> Result<&str, &'static str> {
    let expected = if boxed::has_box(label) {
        boxed::last_boxed(label).ok_or(r"an answer: its \boxed does not close")?
    } else {
        label
    };
    if expected.trim().is_empty() {
        return Err("a text that is not blank");
    }
    Ok(expected)
}

/// Whether the last box of the response holds the expected answer. Without a box the response is wrong.
pub(super) fn is_correct(response: &str, expected: &str) -> bool {
    boxed::last_boxed(response).is_some_and(|given| equivalent(expected, given))
}

fn equivalent(expected: &str, given: &str) -> bool {
    if expected.len().max(given.len()) > MAX_ANSWER_BYTES {
        return expected.trim() == given.trim();
    }
    if normal::surface(expected) == normal::surface(given) {
        return true;
    }
    let (expected, given) = (normal::plain(expected), normal::plain(given));
    expected == given || (!given.is_empty() && equal_by_element(&expected, &given))
}

fn equal_by_element(expected: &str, given: &str) -> bool {
    let (wanted, found) = (elements(expected), elements(given));
    if wanted.len() != found.len() {
        return false;
    }
    let brackets = |text: &str| (text.chars().next(), text.chars().next_back());
    if wanted.len() > 1 && brackets(expected) != brackets(given) {
        return false;
    }
    wanted
        .iter()
        .zip(&found)
        .all(|(wanted, found)| equal_element(wanted, found))
}

fn equal_element(wanted: &str, found: &str) -> bool {
    if is_fraction(wanted) && is_fraction(found) {
        return wanted == found;
    }
    let is_whole = |text: &str| normal::whole_number(text).is_some();
    if is_whole(wanted) != is_whole(found) {
        return false;
    }
    match (expression::evaluate(wanted), expression::evaluate(found)) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => wanted == found,
    }
}

/// The elements of a tuple or interval; anything else is one element.
fn elements(text: &str) -> Vec<String> {
    let text = normal::without_thousands_commas(text);
    let inside = text
        .strip_prefix(BRACKETS)
        .and_then(|rest| rest.strip_suffix(BRACKETS));
    match inside {
        Some(inside) if !inside.is_empty() && !inside.contains(BRACKETS) => inside
            .split(',')
            .map(|element| element.trim().to_owned())
            .collect(),
        _ => vec![text],
    }
}

/// `3/4` or `-3/4`, not by zero.
fn is_fraction(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_prefix('-')
        .unwrap_or(text)
        .split_once('/')
        .is_some_and(|(numerator, denominator)| {
            digits(numerator) && digits(denominator) && denominator.bytes().any(|byte| byte != b'0')
        })
}
