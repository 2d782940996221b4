//! Texts that fit a pattern: what regular expressions and grammars are turned into, and how a text is drawn from it.
//!
//! **Guarantees**: the text fits the pattern unless it would be longer than [`LONGEST`]; the same seed gives the same text; deep or endless
//! recursion is cut short by taking the alternatives that end soonest.

use regex_syntax::hir::{Class, Hir, HirKind};

use super::ForcedText;
use crate::numbers;

/// Characters from which on nothing more is written than must be, and nothing at all after twice as many.
const LONGEST: usize = 16_384;

/// Most repetitions beyond the least number.
const REPETITIONS: usize = 8;

/// Rules inside each other from which on the shortest alternative is taken.
const DEEPEST: usize = 24;

/// What a text may be.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    /// Exactly this.
    Text(String),
    /// One character of these ranges.
    OneOf(Vec<(char, char)>),
    /// One after the other.
    Sequence(Vec<Pattern>),
    /// One of them.
    Choice(Vec<Pattern>),
    /// Again and again.
    Repeat {
        of: Box<Pattern>,
        least: usize,
        most: Option<usize>,
    },
    /// The rule of this number.
    Rule(usize),
}

/// A pattern whose rules are known.
#[derive(Debug, Clone)]
pub(super) struct Grammar {
    pub(super) root: Pattern,
    pub(super) rules: Vec<Pattern>,
    /// How deep each rule goes at least; none for one that never ends.
    heights: Vec<Option<usize>>,
}

impl Grammar {
    /// A grammar with a root.
    pub(super) fn new(root: Pattern, rules: Vec<Pattern>) -> Self {
        let mut heights: Vec<Option<usize>> = vec![None; rules.len()];
        // each round finds the rules that need one level more
        for _ in 0..rules.len() {
            let next: Vec<_> = rules.iter().map(|rule| height(rule, &heights)).collect();
            if next == heights {
                break;
            }
            heights = next;
        }
        Self {
            root,
            rules,
            heights,
        }
    }

    /// Whether some text fits.
    pub(super) fn ends(&self) -> bool {
        height(&self.root, &self.heights).is_some()
    }

    /// A text that fits.
    pub(super) fn sample(&self, seed: u64) -> String {
        let mut writer = Writer {
            grammar: self,
            text: String::new(),
            written: 0,
        };
        writer.write(&self.root, seed, 0);
        writer.text
    }
}

/// How many rules are inside each other at least.
fn height(pattern: &Pattern, heights: &[Option<usize>]) -> Option<usize> {
    match pattern {
        Pattern::Text(_) | Pattern::OneOf(_) | Pattern::Repeat { least: 0, .. } => Some(0),
        Pattern::Sequence(parts) => parts
            .iter()
            .map(|part| height(part, heights))
            .try_fold(0, |highest, part| Some(highest.max(part?))),
        Pattern::Choice(options) => options
            .iter()
            .filter_map(|option| height(option, heights))
            .min(),
        Pattern::Repeat { of, .. } => height(of, heights),
        Pattern::Rule(rule) => heights
            .get(*rule)
            .copied()
            .flatten()
            .map(|height| height + 1),
    }
}

struct Writer<'a> {
    grammar: &'a Grammar,
    text: String,
    written: usize,
}

impl Writer<'_> {
    fn write(&mut self, pattern: &Pattern, seed: u64, depth: usize) {
        if self.written > 2 * LONGEST {
            return;
        }
        match pattern {
            Pattern::Text(text) => {
                self.written += text.len().max(1);
                self.text.push_str(text);
            }
            Pattern::OneOf(ranges) => {
                self.written += 1;
                self.text.extend(character(ranges, seed));
            }
            Pattern::Sequence(parts) => {
                for (index, part) in (0..).zip(parts) {
                    self.write(part, numbers::mix(seed, index), depth);
                }
            }
            Pattern::Choice(options) => {
                if let Some(option) = self.option(options, seed, depth) {
                    self.write(option, numbers::mix(seed, 0x0c), depth);
                }
            }
            Pattern::Repeat { of, least, most } => {
                let brief = depth > DEEPEST || self.written > LONGEST;
                let room = most.map_or(REPETITIONS, |most| (most - least).min(REPETITIONS));
                let more = if brief {
                    0
                } else {
                    numbers::below(numbers::mix(seed, 0x4e), room + 1)
                };
                for index in 0..least + more {
                    if self.written > 2 * LONGEST {
                        return;
                    }
                    self.write(of, numbers::mix(seed, index as u64), depth);
                }
            }
            Pattern::Rule(rule) => {
                self.written += 1;
                if let Some(rule) = self.grammar.rules.get(*rule) {
                    self.write(rule, seed, depth + 1);
                }
            }
        }
    }

    fn option<'p>(&self, options: &'p [Pattern], seed: u64, depth: usize) -> Option<&'p Pattern> {
        let heights = &self.grammar.heights;
        let ending = options
            .iter()
            .filter_map(|option| Some((height(option, heights)?, option)));
        if depth > DEEPEST || self.written > LONGEST {
            return ending
                .min_by_key(|(height, _)| *height)
                .map(|(_, option)| option);
        }
        let ending: Vec<_> = ending.collect();
        let chosen = ending.get(numbers::below(numbers::mix(seed, 0x0f), ending.len()))?;
        Some(chosen.1)
    }
}

/// A character of some ranges, of printable ASCII if there is one.
fn character(ranges: &[(char, char)], seed: u64) -> Option<char> {
    let printable = ranges
        .iter()
        .map(|(first, last)| ((*first).max(' '), (*last).min('~')))
        .filter(|(first, last)| first <= last);
    let printable: Vec<_> = printable.collect();
    let usable = if printable.is_empty() {
        ranges
    } else {
        &printable[..]
    };
    let size = |(first, last): &(char, char)| u32::from(*last) - u32::from(*first) + 1;
    let all: u32 = usable.iter().map(size).sum();
    let mut index = u32::try_from(numbers::below(seed, all as usize)).ok()?;
    for range in usable {
        if index < size(range) {
            // surrogates are no characters
            return char::from_u32(u32::from(range.0) + index).or(Some(range.0));
        }
        index -= size(range);
    }
    None
}

/// The pattern of a regular expression.
pub(super) fn of_regex(pattern: &str) -> Result<Grammar, String> {
    let hir = regex_syntax::parse(pattern).map_err(|error| match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        error => error.to_string(),
    })?;
    let grammar = Grammar::new(of_hir(&hir), Vec::new());
    if grammar.ends() {
        Ok(grammar)
    } else {
        Err("no text fits".into())
    }
}

fn of_hir(hir: &Hir) -> Pattern {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Pattern::Text(String::new()),
        HirKind::Literal(literal) => {
            Pattern::Text(String::from_utf8_lossy(&literal.0).into_owned())
        }
        // a class without a character is a choice without an option
        HirKind::Class(class) if class.is_empty() => Pattern::Choice(Vec::new()),
        HirKind::Class(Class::Unicode(class)) => Pattern::OneOf(
            class
                .iter()
                .map(|range| (range.start(), range.end()))
                .collect(),
        ),
        HirKind::Class(Class::Bytes(class)) => Pattern::OneOf(
            class
                .iter()
                .map(|range| (char::from(range.start()), char::from(range.end())))
                .collect(),
        ),
        HirKind::Repetition(repetition) => Pattern::Repeat {
            of: Box::new(of_hir(&repetition.sub)),
            least: repetition.min as usize,
            most: repetition.max.map(|most| most as usize),
        },
        HirKind::Capture(capture) => of_hir(&capture.sub),
        HirKind::Concat(parts) => Pattern::Sequence(parts.iter().map(of_hir).collect()),
        HirKind::Alternation(options) => Pattern::Choice(options.iter().map(of_hir).collect()),
    }
}

impl ForcedText {
    /// A text that fits a regular expression as a whole.
    pub(crate) fn of_regex(pattern: &str) -> Result<Self, String> {
        of_regex(pattern).map(Self::of_grammar)
    }

    /// A text of a grammar.
    pub(super) fn of_grammar(grammar: Grammar) -> Self {
        Self(std::sync::Arc::new(move |seed| grammar.sample(seed)))
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn a_text_fits_its_expression() {
        for pattern in [
            "yes|no",
            r"\d{3}-\d{4}",
            "[A-Z][a-z]+( [A-Z][a-z]+)*",
            r"^(?:-?\d+(\.\d+)?)$",
            "(a|b(c|d)?)*e{2,3}",
            r"\w+@\w+\.(com|org)",
            "[^a-z]{4}",
            ".{5}",
            "é+",
            "",
        ] {
            let whole = Regex::new(&format!("^(?s:{pattern})$")).unwrap();
            for seed in 0..40 {
                let text = of_regex(pattern).unwrap().sample(seed);
                assert!(whole.is_match(&text), "{text:?} is no {pattern}");
            }
        }
    }

    #[test]
    fn what_is_no_expression_is_said() {
        assert_eq!(of_regex("[").unwrap_err(), "unclosed character class");
        assert_eq!(of_regex(r"[a&&b]").unwrap_err(), "no text fits");
    }

    #[test]
    fn nested_repetitions_do_not_run_away() {
        let text = of_regex("((a{999}){999}){999}").unwrap().sample(1);
        assert!(text.len() <= 2 * LONGEST + 1, "{}", text.len());
    }
}
