//! Files, directories and standard input to documents.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::document::Document;
use super::finding::{Finding, Severity};
use super::lines::Lines;
use super::{scalar, yaml};

/// Largest file: far above what the API server takes in one object.
const MAX_BYTES: u64 = 64 << 20;
/// Deepest directory.
const MAX_DEPTH: usize = 32;

/// What was read: documents in order, and what was wrong with the files themselves.
#[derive(Debug, Default)]
pub struct Sources {
    /// Every document that could be read.
    pub documents: Vec<Document>,
    /// Faults and warnings about the text.
    pub findings: Vec<Finding>,
}

/// Reads files; directories with the `.yaml`, `.yml` and `.json` files below them, by name; `-` for standard input.
pub fn read(paths: &[PathBuf]) -> Sources {
    let mut sources = Sources::default();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            let result = std::io::stdin()
                .take(MAX_BYTES + 1)
                .read_to_end(&mut bytes)
                .map(|_| bytes);
            sources.add("-", result);
        } else if path.is_dir() {
            sources.directory(path, 0);
        } else {
            sources.file(path);
        }
    }
    sources
}

/// Reads one text, as if it was a file of that name.
pub fn read_text(file: &str, text: &str) -> Sources {
    let mut sources = Sources::default();
    sources.text(file, text);
    sources
}

impl Sources {
    fn file(&mut self, path: &Path) {
        let result = std::fs::File::open(path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        self.add(&path.display().to_string(), result);
    }

    fn directory(&mut self, path: &Path, depth: usize) {
        let name = path.display().to_string();
        if depth > MAX_DEPTH {
            self.fault(
                &name,
                None,
                format!("directories nested deeper than {MAX_DEPTH}"),
            );
            return;
        }
        let entries = std::fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect());
        let mut entries: Vec<PathBuf> = match entries {
            Ok(entries) => entries,
            Err(error) => return self.fault(&name, None, format!("cannot be read: {error}")),
        };
        entries.sort();
        for entry in entries {
            let hidden = entry
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if hidden {
                continue;
            }
            if entry.is_dir() {
                self.directory(&entry, depth + 1);
            } else if entry.extension().is_some_and(|extension| {
                extension == "yaml" || extension == "yml" || extension == "json"
            }) {
                self.file(&entry);
            }
        }
    }

    fn add(&mut self, file: &str, bytes: std::io::Result<Vec<u8>>) {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return self.fault(file, None, format!("cannot be read: {error}")),
        };
        if bytes.len() as u64 > MAX_BYTES {
            return self.fault(file, None, format!("larger than {} MiB", MAX_BYTES >> 20));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => self.whole(file, text),
            Err(error) => {
                let good = &bytes[..error.valid_up_to()];
                let line = good.split(|byte| *byte == b'\n').count();
                self.fault(file, Some(line), "not UTF-8 text".to_owned());
            }
        }
    }

    /// A file in which nothing is was meant to have something.
    fn whole(&mut self, file: &str, text: &str) {
        let before = (self.documents.len(), self.findings.len());
        self.text(file, text);
        if before == (self.documents.len(), self.findings.len()) {
            let message = "has no object: it is empty, or has only comments".to_owned();
            let finding = Finding::of_file(&file.into(), Severity::Warning, message);
            self.findings.push(finding);
        }
    }

    fn text(&mut self, file: &str, text: &str) {
        let name: Arc<str> = file.into();
        let (parsed, fault) = yaml::parse(text);
        if let Some(fault) = fault {
            // JSON that is no YAML (tabs, several objects in a row) is read as JSON.
            if text.trim_start().starts_with(['{', '[']) {
                return self.json(&name, text);
            }
            let document = parsed.len() + 1;
            self.documents(&name, parsed);
            self.findings.push(Finding {
                document,
                line: Some(fault.line).filter(|line| *line > 0),
                ..Finding::of_file(&name, Severity::Error, fault.message)
            });
            return;
        }
        self.documents(&name, parsed);
    }

    fn documents(&mut self, name: &Arc<str>, parsed: Vec<yaml::Parsed>) {
        let mut index = 0;
        for parsed in parsed {
            index += 1;
            if parsed.value.is_null() {
                // Nothing between two `---` is nothing.
                continue;
            }
            let document = Document::new(name.clone(), index, parsed.value, Arc::new(parsed.lines));
            for (line, path, message) in parsed.notes {
                self.findings.push(Finding {
                    line: Some(line),
                    ..Finding::about(&document, Severity::Warning, &path, message)
                });
            }
            self.expand(document);
        }
    }

    fn json(&mut self, name: &Arc<str>, text: &str) {
        let lines = Arc::new(Lines::default());
        let stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        for (position, item) in stream.enumerate() {
            match item {
                Ok(mut value) => {
                    normalize(&mut value);
                    self.expand(Document::new(
                        name.clone(),
                        position + 1,
                        value,
                        lines.clone(),
                    ));
                }
                Err(error) => {
                    self.findings.push(Finding {
                        document: position + 1,
                        line: Some(error.line()),
                        ..Finding::of_file(name, Severity::Error, format!("not JSON: {error}"))
                    });
                    return;
                }
            }
        }
    }

    /// A `List` is its items.
    fn expand(&mut self, document: Document) {
        let is_list = document.api_version() == Some("v1") && document.kind() == Some("List");
        match &document.value["items"] {
            Value::Array(items) if is_list => {
                for (position, item) in items.iter().enumerate() {
                    self.documents.push(document.item(item.clone(), position));
                }
            }
            _ => self.documents.push(document),
        }
    }

    fn fault(&mut self, file: &str, line: Option<usize>, message: String) {
        self.findings.push(Finding {
            line,
            ..Finding::of_file(&file.into(), Severity::Error, message)
        });
    }
}

/// 32.0 is 32, as in YAML.
fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number
                .as_f64()
                .filter(|_| number.is_f64())
                .and_then(scalar::whole_or_float)
            {
                *value = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(object) => object.values_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
