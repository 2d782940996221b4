//! Holds texts and ids against those of the real `transformers`: `tests/templates/run.sh` makes them and names their folders.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod ids;
mod texts;

use std::fs;
use std::path::{Path, PathBuf};

use rollout_tokenizer::Json;

fn folder(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run ./test templates"))
        .into()
}

/// The values of a file with one in each line.
fn lines(path: &Path) -> Vec<Json> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split_terminator('\n')
        .map(|line| Json::parse(line).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}
