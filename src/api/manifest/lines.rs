//! Where fields are in their file.

use std::collections::HashMap;

use super::path;

/// Line of each field of a document, by path; lines count from 1.
#[derive(Clone, Debug, Default)]
pub struct Lines(HashMap<String, usize>);

impl Lines {
    pub(super) fn insert(&mut self, path: &str, line: usize) {
        self.0.insert(path.to_owned(), line);
    }

    /// The line of a field, or of the closest parent that is in the file.
    pub fn of(&self, path: &str) -> Option<usize> {
        let mut at = path;
        loop {
            if let Some(line) = self.0.get(at) {
                return Some(*line);
            }
            at = path::parent(at)?;
        }
    }

    /// The first line of the document.
    pub fn first(&self) -> Option<usize> {
        self.0.values().min().copied()
    }
}
