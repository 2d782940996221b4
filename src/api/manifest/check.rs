//! Every check on a set of documents.

use std::collections::HashMap;

use serde_json::Value;

use super::document::Document;
use super::finding::{Finding, Severity};
use super::read::Sources;
use crate::api::references::{self, Need, Reference, Target};
use crate::api::support::{self, Context};
use crate::api::validate::{self, Examined};
use crate::api::{job::RolloutJobSpec, meta, pool::SGLangPoolSpec, without_cluster};

/// Namespace of an object that names none, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";

/// What the documents are checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// Where they will run.
    pub context: Context,
    /// Whether an object that another names is expected in the same files.
    pub complete: bool,
}

/// Everything that is wrong with what was read, in the order of the files, documents and lines.
pub fn examine(sources: &Sources, purpose: Purpose) -> Vec<Finding> {
    let mut findings = sources.findings.clone();
    findings.extend(check(&sources.documents, purpose));
    in_order(&mut findings);
    findings
}

/// Sorts findings by file, document and line. What is about the same line keeps its order.
pub fn in_order(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let place = |finding: &Finding| (finding.document, finding.line.unwrap_or(0));
        a.file.cmp(&b.file).then_with(|| place(a).cmp(&place(b)))
    });
}

/// What is wrong in the documents, in their order.
fn check(documents: &[Document], purpose: Purpose) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut seen = Seen::new();
    for document in documents {
        found.extend(duplicate(document, &mut seen));
        let examined = validate::examine(&document.value);
        let beyond = beyond(document, &examined, documents, purpose);
        found.extend(
            examined
                .violations
                .into_iter()
                .map(|violation| Finding::violation(document, violation)),
        );
        found.extend(beyond);
    }
    found
}

/// What is not built yet, and what is not there. A field is only said to be unsupported once there is nothing else wrong with it.
fn beyond(
    document: &Document,
    examined: &Examined,
    documents: &[Document],
    purpose: Purpose,
) -> Vec<Finding> {
    let spec = &examined.spec;
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
            let mut said = support::job(&spec, purpose.context);
            if purpose.context == Context::Local {
                said.extend(without_cluster::job(&spec));
            }
            (said, references::job(&spec))
        }
        _ => return Vec::new(),
    };
    let mut found: Vec<_> = unsupported
        .into_iter()
        .filter(|violation| !examined.has_error_within(&violation.path))
        .map(|violation| Finding::violation(document, violation))
        .collect();
    for reference in references {
        if examined.is_spoiled(&reference.path) {
            continue;
        }
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
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let same_kind = || documents.iter().filter(|other| other.kind() == Some(kind));
    let named = same_kind().find(|other| {
        other.name() == Some(reference.name.as_str())
            && other.namespace().unwrap_or(DEFAULT_NAMESPACE) == namespace
    });
    let Some(named) = named else {
        let severity = absent(reference, purpose)?;
        let hint =
            elsewhere(same_kind(), &reference.name, namespace).unwrap_or_else(|| match severity {
                Severity::Note => "the cluster must have it".to_owned(),
                Severity::Error | Severity::Warning => "add the file that has it".to_owned(),
            });
        let message = format!("{kind}/{} is not in these files: {hint}", reference.name);
        return Some((severity, message));
    };
    if let Some(key) = nul_in(&named.value, reference) {
        let message = format!(
            "{kind}/{} has a NUL (\\0) in its key {key}, which no variable can hold: remove it",
            reference.name
        );
        return Some((Severity::Error, message));
    }
    let key = reference.key.as_deref()?;
    let keys = keys(&named.value, reference.target);
    if keys.contains(&key) {
        return None;
    }
    let there = match keys.as_slice() {
        [] => "it has none".to_owned(),
        keys => match validate::closest(key, keys.iter().copied()) {
            Some(meant) => format!("did you mean {meant}? It has: {}", keys.join(", ")),
            None => format!("it has: {}", keys.join(", ")),
        },
    };
    let message = format!("{kind}/{} has no key {key}; {there}", reference.name);
    Some((Severity::Error, message))
}

/// What it means that an object is not in the files. `local` has nothing else; a cluster may have it.
fn absent(reference: &Reference, purpose: Purpose) -> Option<Severity> {
    match (purpose.context, reference.need) {
        _ if !purpose.complete => None,
        (Context::Local, Need::Always) => Some(Severity::Error),
        (Context::Local, Need::Cluster) => None,
        (Context::Cluster, _) => reference.target.is_listed().then_some(Severity::Note),
    }
}

/// An object of these files that was meant: the same name in another namespace, or a name that is close.
fn elsewhere<'a>(
    candidates: impl Iterator<Item = &'a Document> + Clone,
    name: &str,
    namespace: &str,
) -> Option<String> {
    let mut namesakes = candidates
        .clone()
        .filter(|other| other.name() == Some(name));
    if let Some(namesake) = namesakes.next() {
        let there = namesake.namespace().unwrap_or(DEFAULT_NAMESPACE);
        return Some(format!(
            "it is in namespace {there}, and is looked for in {namespace}"
        ));
    }
    let meant = validate::closest(name, candidates.filter_map(Document::name))?;
    Some(format!("did you mean {meant}?"))
}

/// A key that variables get, with a text that none can hold.
fn nul_in<'a>(object: &'a Value, reference: &Reference) -> Option<&'a str> {
    if !reference.is_variable() {
        return None;
    }
    let section = match reference.target {
        Target::ConfigMap => "data",
        Target::Secret => "stringData",
        Target::Pool | Target::Claim => return None,
    };
    let wanted = |key: &str| reference.key.as_deref().is_none_or(|wanted| wanted == key);
    let mut texts = object[section].as_object()?.iter();
    let (key, _) = texts
        .find(|(key, text)| wanted(key) && text.as_str().is_some_and(|text| text.contains('\0')))?;
    Some(key)
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
    let namespace = document.namespace().unwrap_or(DEFAULT_NAMESPACE);
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

#[cfg(test)]
mod tests {
    use crate::api::manifest::{Purpose, load_sources, read_text};
    use crate::api::support::Context;

    fn said(config_map: &str) -> String {
        let text = format!(
            r#"
apiVersion: rollout-operator.dev/v1alpha1
kind: RolloutJob
metadata: {{name: j}}
spec:
  pool: {{replicas: 1, engine: {{simulator: {{}}}}}}
  dataset: {{inline: [{{prompt: "1"}}]}}
  rollout: {{batchSize: 1}}
  output: {{persistentVolumeClaim: {{claimName: samples}}}}
  generate:
    agentic:
      agent:
        container:
          template:
            spec:
              containers:
              - {{name: agent, image: i, command: [a], envFrom: [{{configMapRef: {{name: settings}}}}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
{config_map}
"#
        );
        let purpose = Purpose {
            context: Context::Local,
            complete: true,
        };
        load_sources(read_text("f.yaml", &text), purpose)
            .map_or_else(|rejected| rejected.to_string(), |_| String::new())
    }

    #[test]
    fn a_text_that_no_variable_can_hold_is_told_where_it_becomes_one() {
        let told = said(r#"data: {GOOD: "1", BAD: "a\0b"}"#);
        assert!(
            told.contains("envFrom[0].configMapRef: ConfigMap/settings has a NUL (\\0) in its key BAD, which no variable can hold: remove it"),
            "{told}"
        );
        assert_eq!(said(r#"data: {GOOD: "1"}"#), "");
    }
}
