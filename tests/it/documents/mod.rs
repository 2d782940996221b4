//! The documents tell the truth: their commands and flags exist, their manifests are valid, their links lead somewhere, and what they show as printed
//! is what is printed today.

mod commands;
mod guides;
mod links;
mod printed;

use std::path::{Path, PathBuf};

/// A document, by its path in the repository.
struct Document {
    path: PathBuf,
    text: String,
}

/// A block of code.
#[derive(Debug)]
struct Block {
    language: String,
    /// Its first line in the document.
    line: usize,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn document(path: &str) -> Document {
    let text = std::fs::read_to_string(root().join(path));
    Document {
        path: path.into(),
        text: text.unwrap_or_else(|error| panic!("{path}: {error}")),
    }
}

/// All documents for people.
fn documents() -> Vec<Document> {
    let mut paths = vec![
        "README.md".to_owned(),
        "CONTRIBUTING.md".to_owned(),
        "tests/cluster/README.md".to_owned(),
    ];
    for folder in ["docs", "docs/adr"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.into_string().expect("text"));
        let pages = names.filter(|name| Path::new(name).extension() == Some("md".as_ref()));
        paths.extend(pages.map(|name| format!("{folder}/{name}")));
    }
    paths.iter().map(|path| document(path)).collect()
}

impl Document {
    /// Its fenced blocks of code; one may be indented, as within a list.
    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for (number, line) in (1..).zip(self.text.lines()) {
            let indent = line.len() - line.trim_start().len();
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => {
                    let block = Block {
                        language: language.to_owned(),
                        line: number + 1,
                        text: String::new(),
                    };
                    open = Some((indent, block));
                }
                (None, None) => {}
                (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
                (Some((outer, block)), None) => {
                    block.text.push_str(line.get(*outer..).unwrap_or_default());
                    block.text.push('\n');
                }
            }
        }
        assert!(
            open.is_none(),
            "{}: a block does not end",
            self.path.display()
        );
        blocks
    }

    /// Its lines outside of blocks, with their numbers.
    fn prose(&self) -> Vec<(usize, &str)> {
        let mut is_code = false;
        let lines = (1..).zip(self.text.lines());
        lines
            .filter(|(_, line)| {
                let is_fence = line.trim_start().starts_with("```");
                is_code ^= is_fence;
                !is_code && !is_fence
            })
            .collect()
    }

    /// What its lines have in backquotes.
    fn inline_code(&self) -> Vec<(usize, &str)> {
        let spans = self.prose().into_iter().flat_map(|(number, line)| {
            let spans = line.split('`').skip(1).step_by(2);
            spans.map(move |span| (number, span))
        });
        spans.collect()
    }
}
