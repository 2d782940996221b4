//! Answers that are right with a given probability.

use super::Ask;
use super::dataset::Problems;
use crate::config::WordRange;
use crate::numbers;

const WORDS: [&str; 40] = [
    "first", "we", "count", "the", "given", "numbers", "then", "add", "what", "is", "left", "so",
    "each", "part", "takes", "its", "share", "now", "check", "that", "both", "sides", "agree",
    "which", "means", "there", "are", "more", "of", "them", "than", "before", "and", "this",
    "gives", "a", "sum", "step", "by", "step",
];

/// The text of an answer to what the request asks; `None` when the problem is not known and no tool has answered.
pub(crate) fn answer(
    problems: &Problems,
    ask: &Ask<'_>,
    correct_percent: u32,
    words: WordRange,
) -> Option<String> {
    let conversation = ask.conversation();
    let label = problems
        .label(conversation)
        .or_else(|| conversation.last_tool_result())?;
    let right = numbers::below(numbers::mix(ask.seed, 0xa), 100) < correct_percent as usize;
    let said = if right {
        label.trim().to_owned()
    } else {
        wrong(label, ask.seed)
    };
    Some(format!("{} \\boxed{{{said}}}", some_words(words, ask.seed)))
}

/// Words that mean nothing, as many as the range allows.
pub(crate) fn some_words(range: WordRange, seed: u64) -> String {
    let spread = (range.max - range.min) as usize + 1;
    let count = range.min as usize + numbers::below(numbers::mix(seed, 0xb), spread);
    let words: Vec<&str> = (0..count)
        .map(|i| WORDS[numbers::below(numbers::mix(seed, 0xc00 + i as u64), WORDS.len())])
        .collect();
    format!("{}:", words.join(" "))
}

/// An answer of the same kind that is not the right one.
fn wrong(label: &str, seed: u64) -> String {
    let label = label.trim();
    let distance = 1 + numbers::below(numbers::mix(seed, 0xd), 9);
    if let Ok(number) = label.replace(',', "").parse::<i64>() {
        return number
            .saturating_add(i64::try_from(distance).unwrap_or(1))
            .to_string();
    }
    if let [letter @ b'A'..=b'Z'] = label.as_bytes() {
        return char::from(b'A' + (letter - b'A' + 1) % 26).to_string();
    }
    format!("not {label}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_is_never_the_label() {
        for label in ["4", "-3", "1,000", "B", "Z", "x + 1", ""] {
            for seed in 0..50 {
                assert_ne!(wrong(label, seed), label);
            }
        }
        assert_eq!(wrong("Z", 0), "A");
    }
}
