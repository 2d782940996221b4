//! Every check on a set of documents.

use std::collections::HashMap;

use serde_json::Value;

use super::document::Document;
use super::finding::{Finding, Severity};
use super::read::Sources;
use crate::api::references::{self, Reference, Target};
use crate::api::support::{self, Context};
use crate::api::validate::{self, Violation};
use crate::api::{job::RolloutJobSpec, meta, pool::SGLangPoolSpec};

/// What the documents are checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// Where they will run.
    pub context: Context,
    /// Whether an object that another names is expected in the same files.
    pub complete: bool,
}

/// Everything that is wrong with what was read, sorted by file and document.
pub fn examine(sources: &Sources, purpose: Purpose) -> Vec<Finding> {
    let mut findings = sources.findings.clone();
    findings.extend(check(&sources.documents, purpose));
    // What belongs to the same document keeps its order.
    findings.sort_by(|a, b| (&a.file, a.document).cmp(&(&b.file, b.document)));
    findings
}

/// What is wrong in the documents, in their order.
fn check(documents: &[Document], purpose: Purpose) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut seen = Seen::new();
    for document in documents {
        found.extend(duplicate(document, &mut seen));
        let violations = validate::validate(&document.value);
        let sound = !violations.iter().any(Violation::is_error);
        found.extend(
            violations
                .into_iter()
                .map(|violation| Finding::violation(document, violation)),
        );
        if sound {
            found.extend(beyond(document, documents, purpose));
        }
    }
    found
}

/// What is not built yet, and what is not there.
fn beyond(document: &Document, documents: &[Document], purpose: Purpose) -> Vec<Finding> {
    let spec = &document.value["spec"];
    let (unsupported, references) = match (document.api_version(), document.kind()) {
        (Some(meta::API_VERSION), Some(meta::POOL_KIND)) => {
            let Ok(spec) = serde_json::from_value::<SGLangPoolSpec>(spec.clone()) else {
                return Vec::new();
            };
            (
                support::pool(&spec, purpose.context),
                references::pool(&spec),
            )
        }
        (Some(meta::API_VERSION), Some(meta::JOB_KIND)) => {
            let Ok(spec) = serde_json::from_value::<RolloutJobSpec>(spec.clone()) else {
                return Vec::new();
            };
            (support::job(&spec, purpose.context), references::job(&spec))
        }
        _ => return Vec::new(),
    };
    let mut found: Vec<_> = unsupported
        .into_iter()
        .map(|violation| Finding::violation(document, violation))
        .collect();
    for reference in references {
        if let Some((severity, message)) = unresolved(document, &reference, documents, purpose) {
            found.push(Finding::about(document, severity, &reference.path, message));
        }
    }
    found
}

/// Why a reference leads nowhere, if it does.
fn unresolved(
    document: &Document,
    reference: &Reference,
    documents: &[Document],
    purpose: Purpose,
) -> Option<(Severity, String)> {
    let kind = reference.target.kind();
    let namespace = reference.namespace.as_deref().or(document.namespace());
    let named = documents.iter().find(|other| {
        other.kind() == Some(kind)
            && other.name() == Some(reference.name.as_str())
            && other.namespace().unwrap_or("default") == namespace.unwrap_or("default")
    });
    let Some(named) = named else {
        let here = reference.namespace.is_none();
        let expected = purpose.complete && here && reference.target.is_manifest();
        return expected.then(|| {
            let message = format!("{kind}/{} is not in these files", reference.name);
            (Severity::Warning, message)
        });
    };
    let key = reference.key.as_deref()?;
    let keys = keys(&named.value, reference.target);
    if keys.contains(&key) {
        return None;
    }
    let there = if keys.is_empty() {
        "none".to_owned()
    } else {
        keys.join(", ")
    };
    let message = format!(
        "{kind}/{} has no key {key}; it has: {there}",
        reference.name
    );
    Some((Severity::Error, message))
}

fn keys(object: &Value, target: Target) -> Vec<&str> {
    let sections: &[&str] = match target {
        Target::ConfigMap => &["data", "binaryData"],
        Target::Secret => &["data", "stringData"],
        Target::Pool | Target::Claim => &[],
    };
    sections
        .iter()
        .filter_map(|section| object[*section].as_object())
        .flat_map(|section| section.keys().map(String::as_str))
        .collect()
}

/// Names that were seen, with the document that had them first.
type Seen<'a> = HashMap<(&'a str, &'a str, &'a str, &'a str), &'a Document>;

/// The second of two objects of the same name would replace the first.
fn duplicate<'a>(document: &'a Document, seen: &mut Seen<'a>) -> Option<Finding> {
    let (version, kind) = (document.api_version()?, document.kind()?);
    let name = document.value["metadata"]["name"].as_str()?;
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let namespace = document.namespace().unwrap_or("default");
    let first = seen.insert((group, kind, namespace, name), document)?;
    let message = format!(
        "{kind}/{name} is in {}:{} already and would replace it: remove one",
        first.file, first.index
    );
    Some(Finding::about(
        document,
        Severity::Error,
        "metadata.name",
        message,
    ))
}
