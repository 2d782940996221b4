//! Where a difference is allowed, and why.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

/// What may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Allowed {
    /// The value; its type may not.
    Value,
    /// The length of a list, or which events a stream is cut into.
    Length,
    /// Whether it is there.
    Presence,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    why: String,
    allow: Allowed,
    /// Numbers of captures; all when absent.
    #[serde(rename = "in", default)]
    captures: Vec<u32>,
    /// Paths in the response; `*` is one step, `**` any number of them.
    at: Vec<String>,
    /// Both values must be texts that match this.
    #[serde(default)]
    like: Option<String>,
    /// Both values must be texts that are equal but for what matches this.
    #[serde(default)]
    mask: Option<String>,
    #[serde(skip)]
    used: BTreeSet<usize>,
}

/// The list.
#[derive(Debug)]
pub(crate) struct Exceptions(Vec<Exception>);

impl Exceptions {
    pub(crate) fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("the list of exceptions");
        let list: Vec<Exception> = serde_json::from_str(&text).expect("a list of exceptions");
        assert!(
            list.iter().all(|exception| exception.why.len() > 10),
            "every exception has a reason"
        );
        Self(list)
    }

    /// Whether a difference is allowed. The first exception that allows it counts as used.
    pub(crate) fn allow(
        &mut self,
        capture: u32,
        path: &[String],
        what: Allowed,
        values: Option<(&Value, &Value)>,
    ) -> bool {
        self.0
            .iter_mut()
            .filter(|exception| {
                exception.captures.is_empty() || exception.captures.contains(&capture)
            })
            .filter(|exception| exception.allow == what && exception.allows(values))
            .any(|exception| exception.covers(path))
    }

    /// Exceptions that allowed nothing.
    pub(crate) fn unused(&self) -> Vec<String> {
        let unused = |exception: &Exception| {
            let paths = exception.at.iter().enumerate();
            let unused = paths.filter(|(index, _)| !exception.used.contains(index));
            unused
                .map(|(_, at)| format!("{at}: {}", exception.why))
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(unused).collect()
    }
}

impl Exception {
    fn allows(&self, values: Option<(&Value, &Value)>) -> bool {
        let texts =
            values.and_then(|(expected, actual)| Some((expected.as_str()?, actual.as_str()?)));
        let regex = |pattern: &Option<String>| {
            pattern
                .as_ref()
                .map(|pattern| Regex::new(pattern).expect("a pattern"))
        };
        let like = regex(&self.like).is_none_or(|like| {
            texts.is_some_and(|(expected, actual)| like.is_match(expected) && like.is_match(actual))
        });
        let masked = regex(&self.mask).is_none_or(|mask| {
            texts.is_some_and(|(expected, actual)| {
                mask.replace_all(expected, "") == mask.replace_all(actual, "")
            })
        });
        like && masked
    }

    fn covers(&mut self, path: &[String]) -> bool {
        let found = self
            .at
            .iter()
            .position(|at| fits(&at.split('.').collect::<Vec<_>>(), path));
        self.used.extend(found);
        found.is_some()
    }
}

fn fits(pattern: &[&str], path: &[String]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), _) => {
            fits(rest, path)
                || path
                    .split_first()
                    .is_some_and(|(_, further)| fits(pattern, further))
        }
        (Some((step, rest)), Some((here, further))) => {
            (*step == "*" || step == here) && fits(rest, further)
        }
        _ => false,
    }
}
