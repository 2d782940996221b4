//! Grammars in the EBNF of `XGrammar`: `root ::= "a" [b-z]* (rule | "c"){2,3} # comment`.
//!
//! What it does not know (look-ahead, macros) is refused with the place.

use std::collections::HashMap;

use super::ForcedText;
use super::pattern::{Grammar, Pattern};

impl ForcedText {
    /// A text of the rule `root`.
    pub(crate) fn of_ebnf(text: &str) -> Result<Self, String> {
        parse(text).map(Self::of_grammar)
    }
}

/// Groups inside each other that are read.
const DEEPEST: usize = 100;

/// Rules that are read.
const MOST_RULES: usize = 2_000;

fn parse(text: &str) -> Result<Grammar, String> {
    let mut parser = Parser {
        rest: text,
        whole: text,
        numbers: HashMap::new(),
        depth: 0,
    };
    let mut rules: HashMap<usize, Pattern> = HashMap::new();
    parser.skip_space();
    while !parser.rest.is_empty() {
        let name = parser
            .name()
            .ok_or_else(|| parser.wrong("expect a rule name"))?;
        parser.skip_space();
        if !parser.take("::=") {
            return Err(parser.wrong("expect ::="));
        }
        let rule = parser.number(name);
        let body = parser.choice()?;
        if parser.numbers.len() > MOST_RULES {
            return Err(format!("more than {MOST_RULES} rules are not simulated"));
        }
        if rules.insert(rule, body).is_some() {
            return Err(parser.wrong(&format!("rule {name} is defined twice")));
        }
    }
    let Some(root) = parser.numbers.get("root").copied() else {
        return Err("the root rule with name \"root\" is not found".into());
    };
    let mut ordered = Vec::with_capacity(parser.numbers.len());
    let mut names: Vec<_> = parser.numbers.into_iter().collect();
    names.sort_unstable_by_key(|(_, number)| *number);
    for (name, number) in names {
        let rule = rules.remove(&number);
        ordered.push(rule.ok_or_else(|| format!("rule {name} is not defined"))?);
    }
    let grammar = Grammar::new(Pattern::Rule(root), ordered);
    if grammar.ends() {
        Ok(grammar)
    } else {
        Err("the root rule never ends".into())
    }
}

struct Parser<'a> {
    rest: &'a str,
    whole: &'a str,
    numbers: HashMap<&'a str, usize>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, what: &str) -> String {
        let read = &self.whole[..self.whole.len() - self.rest.len()];
        let line = read.matches('\n').count() + 1;
        let column = read.rsplit('\n').next().unwrap_or(read).chars().count() + 1;
        format!("EBNF parser error at line {line}, column {column}: {what}")
    }

    fn number(&mut self, name: &'a str) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(name).or_insert(next)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip_space(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let first = self.peek()?;
        if !(first.is_ascii_alphabetic() || first == '_') {
            return None;
        }
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(name)
    }

    /// Whether a rule begins here, so that the one before has ended.
    fn begins_a_rule(&self) -> bool {
        let mut ahead = Parser {
            rest: self.rest,
            whole: self.whole,
            numbers: HashMap::new(),
            depth: 0,
        };
        if ahead.name().is_none() {
            return false;
        }
        ahead.skip_space();
        ahead.rest.starts_with("::=")
    }

    fn choice(&mut self) -> Result<Pattern, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong("too deeply nested"));
        }
        let mut options = vec![self.sequence()?];
        while self.take("|") {
            options.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(Pattern::Choice(options))
    }

    fn sequence(&mut self) -> Result<Pattern, String> {
        let mut parts = Vec::new();
        loop {
            self.skip_space();
            if matches!(self.peek(), None | Some('|' | ')')) || self.begins_a_rule() {
                return Ok(Pattern::Sequence(parts));
            }
            let element = self.element()?;
            parts.push(self.repeated(element)?);
        }
    }

    fn element(&mut self) -> Result<Pattern, String> {
        if let Some(name) = self.name() {
            return Ok(Pattern::Rule(self.number(name)));
        }
        match self.next() {
            Some('"') => {
                let mut text = String::new();
                loop {
                    match self.next() {
                        None | Some('\n') => return Err(self.wrong("expect \" to end a string")),
                        Some('"') => return Ok(Pattern::Text(text)),
                        Some('\\') => text.push(self.escaped()?),
                        Some(character) => text.push(character),
                    }
                }
            }
            Some('[') => self.class(),
            Some('(') => {
                if self.rest.starts_with('=') {
                    return Err(self.wrong("look-ahead is not simulated"));
                }
                let inner = self.choice()?;
                if self.take(")") {
                    Ok(inner)
                } else {
                    Err(self.wrong("expect )"))
                }
            }
            Some('.') => Ok(Pattern::OneOf(vec![('\0', char::MAX)])),
            _ => Err(self.wrong("expect an element")),
        }
    }

    fn class(&mut self) -> Result<Pattern, String> {
        let negated = self.take("^");
        let mut ranges: Vec<(char, char)> = Vec::new();
        loop {
            let first = match self.next() {
                None | Some('\n') => return Err(self.wrong("expect ] to end a character class")),
                Some(']') => break,
                Some('\\') => self.escaped()?,
                Some(character) => character,
            };
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            if !is_range {
                ranges.push((first, first));
                continue;
            }
            self.next();
            let last = match self.next() {
                None => return Err(self.wrong("expect the end of a range")),
                Some('\\') => self.escaped()?,
                Some(character) => character,
            };
            if last < first {
                return Err(self.wrong("a range ends before it begins"));
            }
            ranges.push((first, last));
        }
        let ranges = if negated { others(ranges) } else { ranges };
        if ranges.is_empty() {
            return Err(self.wrong("a character class is empty"));
        }
        Ok(Pattern::OneOf(ranges))
    }

    fn escaped(&mut self) -> Result<char, String> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(character) if !character.is_ascii_alphanumeric() => return Ok(character),
            _ => return Err(self.wrong("an unknown escape")),
        };
        let code = self.rest.get(..digits);
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        let Some(character) = code.and_then(char::from_u32) else {
            return Err(self.wrong("an escape without its digits"));
        };
        self.rest = &self.rest[digits..];
        Ok(character)
    }

    fn repeated(&mut self, element: Pattern) -> Result<Pattern, String> {
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.next();
                let bounds = self.bounds()?;
                return Ok(repeat(element, bounds));
            }
            _ => return Ok(element),
        };
        self.next();
        Ok(repeat(element, (least, most)))
    }

    fn bounds(&mut self) -> Result<(usize, Option<usize>), String> {
        let Some((inside, rest)) = self.rest.split_once('}') else {
            return Err(self.wrong("expect } to end a repetition"));
        };
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let bounds = match inside.split_once(',') {
            None => number(inside).map(|count| (count, Some(count))),
            Some((least, most)) if most.trim().is_empty() => {
                number(least).map(|least| (least, None))
            }
            Some((least, most)) => number(least).zip(number(most).map(Some)),
        };
        let fits = bounds.filter(|(least, most)| most.is_none_or(|most| most >= *least));
        let Some(bounds) = fits else {
            return Err(self.wrong("no repetition"));
        };
        self.rest = rest;
        Ok(bounds)
    }
}

fn repeat(of: Pattern, (least, most): (usize, Option<usize>)) -> Pattern {
    Pattern::Repeat {
        of: Box::new(of),
        least,
        most,
    }
}

/// The characters outside of some ranges.
fn others(mut ranges: Vec<(char, char)>) -> Vec<(char, char)> {
    ranges.sort_unstable();
    let mut outside = Vec::new();
    let mut next = Some('\0');
    for (first, last) in ranges {
        let Some(from) = next else { break };
        if from < first {
            outside.push((from, ('\0'..first).next_back().unwrap_or(from)));
        }
        if last >= from {
            next = (last..=char::MAX).nth(1);
        }
    }
    outside.extend(next.map(|from| (from, char::MAX)));
    outside
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn a_text_fits_its_grammar() {
        for (grammar, expression) in [
            (r#"root ::= "yes" | "no""#, "^(yes|no)$"),
            (
                "root ::= name \" is \" age # a person\nname ::= [A-Z] [a-z]{2,5}\nage ::= [1-9] [0-9]?",
                "^[A-Z][a-z]{2,5} is [1-9][0-9]?$",
            ),
            (r#"root ::= ("a" | "b")+ "\n\x41""#, "^[ab]+\nA$"),
            (r#"root ::= [^"\]x]{3}"#, r#"^[^"\]x]{3}$"#),
        ] {
            let expression = Regex::new(expression).unwrap();
            let grammar = parse(grammar).unwrap();
            for seed in 0..40 {
                let text = grammar.sample(seed);
                assert!(expression.is_match(&text), "{text:?} is no {expression}");
            }
        }
    }

    #[test]
    fn recursion_ends() {
        let grammar = parse(r#"root ::= "(" root root ")" | "x""#).unwrap();
        for seed in 0..40 {
            let text = grammar.sample(seed);
            assert_eq!(text.matches('(').count(), text.matches(')').count());
        }
    }

    #[test]
    fn what_is_no_grammar_is_said() {
        for (grammar, part) in [
            ("", "root"),
            ("a ::= \"b\"", "root"),
            ("root ::= b", "rule b is not defined"),
            ("root ::= root", "never ends"),
            ("root ::= \"a", "line 1, column 12"),
            ("root ::= [a", "expect ]"),
            ("root ::= (\"a\"", "expect )"),
            ("root ::= \"a\"{3,1}", "no repetition"),
            ("root ::= [b-a]", "ends before"),
            ("root = \"a\"", "expect ::="),
            ("root ::= \"a\"\nroot ::= \"b\"", "twice"),
            ("root ::= (= \"a\") \"b\"", "look-ahead"),
        ] {
            let error = parse(grammar).unwrap_err();
            assert!(error.contains(part), "{grammar}: {error}");
        }
        let deep = format!("root ::= {}", "(".repeat(100_000));
        assert!(parse(&deep).unwrap_err().contains("too deeply nested"));
    }
}
