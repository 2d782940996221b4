//! One object of a manifest file.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::lines::Lines;
use super::path;

/// One object, where it was found, and what it says it is.
#[derive(Clone, Debug)]
pub struct Document {
    /// File, as it was given; `-` is standard input.
    pub file: Arc<str>,
    /// Which document of the file, from 1.
    pub index: usize,
    /// The object.
    pub value: Value,
    lines: Arc<Lines>,
    /// Path of the object in its document: `items[2]` in a `List`.
    prefix: String,
}

impl Document {
    pub(super) fn new(file: Arc<str>, index: usize, value: Value, lines: Arc<Lines>) -> Self {
        Self {
            file,
            index,
            value,
            lines,
            prefix: String::new(),
        }
    }

    /// An item of a `List`, which is in the same place of the same file.
    pub(super) fn item(&self, value: Value, index: usize) -> Self {
        Self {
            file: self.file.clone(),
            index: self.index,
            value,
            lines: self.lines.clone(),
            prefix: path::index("items", index),
        }
    }

    /// Line of a field of the object.
    pub fn line_of(&self, field: &str) -> Option<usize> {
        let full = match (self.prefix.is_empty(), field.is_empty()) {
            (true, _) => field.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{field}", self.prefix),
        };
        self.lines.of(&full).or_else(|| self.lines.first())
    }

    /// `apiVersion`.
    pub fn api_version(&self) -> Option<&str> {
        self.value["apiVersion"].as_str()
    }

    /// `kind`.
    pub fn kind(&self) -> Option<&str> {
        self.value["kind"].as_str()
    }

    /// `metadata.name`, else `metadata.generateName`.
    pub fn name(&self) -> Option<&str> {
        let metadata = &self.value["metadata"];
        metadata["name"]
            .as_str()
            .or_else(|| metadata["generateName"].as_str())
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }

    /// `kind/name`, as far as they are known.
    pub fn identity(&self) -> Identity<'_> {
        Identity(self)
    }
}

/// Shows which object a document is.
pub struct Identity<'a>(&'a Document);

impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.kind().unwrap_or("?");
        let name = self.0.name().unwrap_or("?");
        write!(f, "{kind}/{name}")
    }
}
