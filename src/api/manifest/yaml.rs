//! YAML text to JSON values, with the line of every field.
//!
//! Guarantees: the same value as `kubectl` sends, or an error with its line; bounded depth and bounded expansion of aliases; a duplicate
//! key is an error, because one of the two values would be lost. A document that does not parse does not hide the ones before it.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::lines::Lines;
use super::path;
use super::scalar::{self, Resolved};

/// Deepest nesting.
const DEPTH: usize = 100;
/// Most values of a document, aliases expanded.
const VALUES: usize = 200_000;

/// One document of a stream.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) value: Value,
    pub(super) lines: Lines,
    /// Ambiguous scalars: line, path, text.
    pub(super) notes: Vec<(usize, String, String)>,
}

/// Why a document does not parse.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) message: String,
}

type Events<'a> = Parser<'a, StrInput<'a>>;

/// Every document up to the first that does not parse, and that one's fault.
pub(super) fn parse(text: &str) -> (Vec<Parsed>, Option<Fault>) {
    let options = granit_parser::options! {
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
        emit_comments: false,
        // As libyaml, of which Go's parser is a port.
        block_scalar_eof_without_line_feed: true,
    };
    let mut events = Parser::new_from_str_with_options(text, options);
    let mut documents = Vec::new();
    loop {
        match next_document(&mut events) {
            Ok(Some(document)) => documents.push(document),
            Ok(None) => return (documents, None),
            Err(fault) => return (documents, Some(fault)),
        }
    }
}

fn next_document(events: &mut Events<'_>) -> Result<Option<Parsed>, Fault> {
    loop {
        let Some(event) = events.next_event() else {
            return Ok(None);
        };
        let (event, span) = event.map_err(|error| scan_fault(&error))?;
        match event {
            Event::StreamEnd => return Ok(None),
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            other => {
                let mut builder = Builder::default();
                let value = builder.node(events, other, span, "", 0)?;
                return Ok(Some(Parsed {
                    value,
                    lines: builder.lines,
                    notes: builder.notes,
                }));
            }
        }
    }
}

fn scan_fault(error: &ScanError) -> Fault {
    let mut message = error.info();
    if let Some(start) = message.find(" at byte") {
        message.truncate(start);
    }
    if let Some(hint) = instead(&message) {
        message = format!("{hint} ({message})");
    }
    Fault {
        line: error.marker().line(),
        message,
    }
}

/// What to write, by what the parser stumbled over.
fn instead(message: &str) -> Option<&'static str> {
    const HINTS: [(&str, &str); 10] = [
        (
            "unexpected character: `\\u{",
            "a character that cannot be seen and is no text: remove it, or write its escape in double quotes, as in \"\\0\"; if the file is in UTF-16, save it as UTF-8",
        ),
        ("tab", "YAML indents with spaces: replace the tab"),
        (
            "mapping values are not allowed",
            "a second \": \" on a line, or a line that is indented too far: put a text with a colon in quotes, or align the line",
        ),
        (
            "block mapping",
            "this line does not fit those above: fields of one object begin in the same column, and a list item begins with \"- \"",
        ),
        (
            "block collection",
            "this line does not fit those above: items of one list begin in the same column",
        ),
        (
            "flow mapping",
            "a { is not closed, or a comma is missing: put a text with , : { or } in quotes",
        ),
        (
            "flow sequence",
            "a [ is not closed, or a comma is missing: put a text with , [ or ] in quotes",
        ),
        (
            "unknown anchor",
            "a text cannot begin with * without quotes: put it in quotes; an alias needs its anchor (&name) before it in the same document",
        ),
        (
            "unexpected character",
            "a text cannot begin with this character without quotes: put it in quotes",
        ),
        ("quote", "put the missing quote at the end of the text"),
    ];
    let hint = HINTS.iter().find(|(said, _)| message.contains(said));
    hint.map(|(_, hint)| *hint)
}

#[derive(Default)]
struct Builder {
    lines: Lines,
    notes: Vec<(usize, String, String)>,
    anchors: HashMap<usize, (Value, usize)>,
    values: usize,
}

impl Builder {
    fn node(
        &mut self,
        events: &mut Events<'_>,
        event: Event<'_>,
        span: Span,
        at: &str,
        depth: usize,
    ) -> Result<Value, Fault> {
        let line = span.start.line();
        let before = self.values;
        self.count(1, line)?;
        if depth > DEPTH {
            return Err(fault(line, format!("nested deeper than {DEPTH} levels")));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (self.scalar(text, style, tag.as_deref(), at, line)?, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "seq", line)?;
                (self.sequence(events, at, depth)?, anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), "map", line)?;
                (self.mapping(events, at, depth)?, anchor)
            }
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(fault(line, "an alias inside its own anchor".to_owned()));
                };
                self.count(size, line)?;
                return Ok(value);
            }
            other => return Err(fault(line, format!("unexpected {other:?}"))),
        };
        if anchor != 0 {
            self.anchors
                .insert(anchor, (value.clone(), self.values - before));
        }
        Ok(value)
    }

    fn count(&mut self, values: usize, line: usize) -> Result<(), Fault> {
        self.values += values;
        if self.values > VALUES {
            return Err(fault(
                line,
                format!("more than {VALUES} values in a document"),
            ));
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        tag: Option<&Tag>,
        at: &str,
        line: usize,
    ) -> Result<Value, Fault> {
        let suffix = match tag {
            None => None,
            Some(tag) => match tag.core_suffix() {
                Some(suffix) => Some(suffix),
                None if tag.original() == "!" => Some("str"),
                None => return Err(unknown_tag(tag, line)),
            },
        };
        match suffix {
            Some("str") => return Ok(Value::from(text.into_owned())),
            None if style != ScalarStyle::Plain => return Ok(Value::from(text.into_owned())),
            _ => {}
        }
        let Resolved { value, ambiguity } =
            scalar::resolve(&text).map_err(|message| fault(line, message))?;
        if let Some(tag) = suffix
            && !has_type(&value, tag)
        {
            return Err(fault(line, format!("{text} is no !!{tag}")));
        }
        if let Some(note) = ambiguity {
            self.notes.push((line, at.to_owned(), note));
        }
        Ok(value)
    }

    fn sequence(
        &mut self,
        events: &mut Events<'_>,
        at: &str,
        depth: usize,
    ) -> Result<Value, Fault> {
        let mut items = Vec::new();
        loop {
            let (event, span) = next(events)?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::Array(items));
            }
            let item_path = path::index(at, items.len());
            self.lines.insert(&item_path, span.start.line());
            items.push(self.node(events, event, span, &item_path, depth + 1)?);
        }
    }

    fn mapping(&mut self, events: &mut Events<'_>, at: &str, depth: usize) -> Result<Value, Fault> {
        let mut object = Map::new();
        let mut merged = Vec::new();
        let mut first_seen: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, span) = next(events)?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let line = span.start.line();
            let is_merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.key(events, event, span, at, depth)?;
            let member = path::member(at, &key);
            let (event, span) = next(events)?;
            if is_merge {
                merged.push((self.node(events, event, span, &member, depth + 1)?, line));
                continue;
            }
            if let Some(first) = first_seen.insert(key.clone(), line) {
                return Err(fault(
                    line,
                    format!("{member} is set twice (first in line {first}): remove one"),
                ));
            }
            self.lines.insert(&member, line);
            let value = self.node(events, event, span, &member, depth + 1)?;
            object.insert(key, value);
        }
        for (value, line) in merged {
            merge(&mut object, value, line)?;
        }
        Ok(Value::Object(object))
    }

    /// A key as JSON has it: a text.
    fn key(
        &mut self,
        events: &mut Events<'_>,
        event: Event<'_>,
        span: Span,
        at: &str,
        depth: usize,
    ) -> Result<String, Fault> {
        let line = span.start.line();
        match self.node(events, event, span, at, depth + 1)? {
            Value::String(text) => Ok(text),
            Value::Bool(flag) => Ok(flag.to_string()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Null => Err(fault(line, "a key is empty".to_owned())),
            Value::Array(_) | Value::Object(_) => Err(fault(
                line,
                "a key is a list or an object: only texts can be keys; render a template with {{ }} first, put a text with braces in quotes"
                    .to_owned(),
            )),
        }
    }
}

fn next<'a>(events: &mut Events<'a>) -> Result<(Event<'a>, Span), Fault> {
    match events.next_event() {
        Some(Ok(event)) => Ok(event),
        Some(Err(error)) => Err(scan_fault(&error)),
        None => Err(fault(
            0,
            "the file ends in the middle of a document".to_owned(),
        )),
    }
}

/// What `<<` brings in; keys that are there already win.
fn merge(object: &mut Map<String, Value>, value: Value, line: usize) -> Result<(), Fault> {
    match value {
        Value::Object(other) => {
            for (key, value) in other {
                object.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(items) => items
            .into_iter()
            .try_for_each(|item| merge(object, item, line)),
        _ => Err(fault(
            line,
            "<< takes an object or a list of objects".to_owned(),
        )),
    }
}

fn has_type(value: &Value, tag: &str) -> bool {
    match tag {
        "null" => value.is_null(),
        "bool" => value.is_boolean(),
        "int" => value.is_i64() || value.is_u64(),
        "float" => value.is_number(),
        _ => false,
    }
}

fn check_tag(tag: Option<&Tag>, wanted: &str, line: usize) -> Result<(), Fault> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(wanted) => Err(unknown_tag(tag, line)),
        _ => Ok(()),
    }
}

fn unknown_tag(tag: &Tag, line: usize) -> Fault {
    fault(
        line,
        format!(
            "the tag {} means nothing to kubectl: remove it",
            tag.original()
        ),
    )
}

fn fault(line: usize, message: String) -> Fault {
    Fault { line, message }
}
