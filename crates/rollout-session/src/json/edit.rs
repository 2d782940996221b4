//! Changes single fields of a JSON object as bytes. Every field that is kept stays as it was written.

use std::ops::Range;

use super::cursor::{Cursor, JsonError, Key};

/// One field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The key, unescaped.
    pub key: String,
    /// From the key's opening quote to the end of the value.
    pub span: Range<usize>,
    /// The value alone.
    pub value: Range<usize>,
}

/// The fields of an object in the order in which they were written, duplicates included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields {
    fields: Vec<Field>,
    /// Offset of the closing brace.
    end: usize,
}

impl Fields {
    /// Reads the top level of an object that is the whole of `text`.
    ///
    /// # Errors
    /// Malformed JSON, or not an object.
    pub fn read(text: &str) -> Result<Self, JsonError> {
        Self::read_with(text, |_, value| value.skip())
    }

    /// The same, with a look at the values on the way: `each` is called at every value and must read it.
    ///
    /// # Errors
    /// Malformed JSON, not an object, or what `each` returns.
    pub fn read_with<'a, E: From<JsonError>>(
        text: &'a str,
        mut each: impl FnMut(&Key<'a>, &mut Cursor<'a>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut cursor = Cursor::new(text);
        let mut fields = Vec::new();
        cursor.object::<E>(|key, value| {
            let start = value.position();
            each(key, value)?;
            let end = value.position();
            fields.push(Field {
                key: key.name.as_ref().to_owned(),
                span: key.start..end,
                value: start..end,
            });
            Ok(())
        })?;
        let end = cursor.position() - 1;
        cursor.finish()?;
        Ok(Self { fields, end })
    }

    /// The field `key`; of duplicates the last one, which is the one that parsers keep.
    pub fn get(&self, key: &str) -> Option<&Field> {
        self.fields.iter().rev().find(|field| field.key == key)
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter()
    }

    /// Offset of the closing brace.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Writes the object again without the fields that `drop` names, and with `added` (`"key":value` pieces, joined by commas) at
    /// its end.
    pub fn rewrite(&self, text: &str, drop: impl Fn(&str) -> bool, added: &str) -> String {
        let mut out = String::with_capacity(text.len() + added.len() + 2);
        out.push('{');
        for field in self.fields.iter().filter(|field| !drop(&field.key)) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(text.get(field.span.clone()).unwrap_or_default());
        }
        if out.len() > 1 && !added.is_empty() {
            out.push(',');
        }
        out.push_str(added);
        out.push('}');
        out
    }
}

/// Collects the byte ranges to cut so that chosen fields disappear from an object, commas included. Fed field by field, in order.
#[derive(Debug, Default)]
pub struct FieldCuts {
    last_end: Option<usize>,
    kept_any: bool,
    open: Option<usize>,
}

impl FieldCuts {
    /// The next field spans `span`; `cut` says whether it goes.
    pub fn field(&mut self, span: Range<usize>, cut: bool, cuts: &mut Vec<Range<usize>>) {
        if let Some(start) = self.open.take() {
            cuts.push(start..span.start);
        }
        if cut {
            match self.last_end {
                Some(end) if self.kept_any => cuts.push(end..span.end),
                _ => self.open = Some(span.start),
            }
        } else {
            self.kept_any = true;
        }
        self.last_end = Some(span.end);
    }

    /// There is no further field.
    pub fn end(self, cuts: &mut Vec<Range<usize>>) {
        if let (Some(start), Some(end)) = (self.open, self.last_end) {
            cuts.push(start..end);
        }
    }
}

/// Copies `bytes` without the ranges `cuts`, which are in order and do not overlap.
pub fn without(bytes: &[u8], cuts: &[Range<usize>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for cut in cuts {
        out.extend_from_slice(bytes.get(from..cut.start).unwrap_or_default());
        from = cut.end.max(from);
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    out
}
