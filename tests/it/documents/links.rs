//! Links lead to files of the repository, and to headings that they have.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Document, documents, root};

/// The targets of a line's links.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.split("](").skip(1);
    ends.filter_map(|rest| rest.split(')').next()).collect()
}

/// Headings as links name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                letter => letter.is_alphanumeric().then_some(letter),
            });
            kept.collect()
        })
        .collect()
}

/// Why a link leads nowhere.
fn problem(document: &Document, target: &str) -> Option<String> {
    if target.starts_with("https://") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let folder = document.path.parent().unwrap_or(Path::new(""));
    let path = match file {
        "" => root().join(&document.path),
        file => root().join(folder).join(file),
    };
    if !path.exists() {
        return Some(format!("{} is not there", path.display()));
    }
    let anchor = anchor?;
    let text = std::fs::read_to_string(&path).expect("a page");
    (!anchors(&text).contains(anchor)).then(|| format!("{file} has no heading {anchor}"))
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    let mut problems = Vec::new();
    for document in documents() {
        for (number, line) in document.prose() {
            for target in targets(line) {
                links += 1;
                let found = problem(&document, target);
                problems.extend(
                    found.map(|found| format!("{}:{number}: {found}", document.path.display())),
                );
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(links > 20, "{links} links");
}

#[test]
fn a_wrong_link_is_found() {
    let document = Document {
        path: "docs/page.md".into(),
        text: String::new(),
    };
    assert_eq!(problem(&document, "../README.md#quickstart"), None);
    assert!(problem(&document, "../README.md#nowhere").is_some());
    assert!(problem(&document, "nowhere.md").is_some());
}
