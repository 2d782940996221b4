//! Documents as typed objects.

use std::fmt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde::de::DeserializeOwned;

use super::check::{Purpose, examine};
use super::document::Document;
use super::finding::{Finding, Severity};
use super::read::{Sources, read};
use crate::api::job::RolloutJob;
use crate::api::meta;
use crate::api::pool::SGLangPool;

/// The objects of a set of files, checked.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Rollouts.
    pub jobs: Vec<Loaded<RolloutJob>>,
    /// Pools.
    pub pools: Vec<Loaded<SGLangPool>>,
    /// `ConfigMaps`.
    pub config_maps: Vec<Loaded<ConfigMap>>,
    /// Secrets.
    pub secrets: Vec<Loaded<Secret>>,
    /// Everything else.
    pub others: Vec<Other>,
    /// What the author should look at.
    pub warnings: Vec<Finding>,
}

/// An object and its document.
#[derive(Clone, Debug)]
pub struct Loaded<K> {
    /// The object.
    pub object: K,
    /// Where it was found, and its raw form.
    pub document: Document,
}

/// An object of a kind that is not ours.
#[derive(Clone, Debug)]
pub struct Other {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
    /// Where it was found, and its raw form.
    pub document: Document,
}

/// Files that are refused, with every reason. Displayed one finding a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    /// Errors and warnings.
    pub findings: Vec<Finding>,
}

impl std::error::Error for Rejected {}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, finding) in self.findings.iter().enumerate() {
            let separator = if position == 0 { "" } else { "\n" };
            write!(f, "{separator}{finding}")?;
        }
        Ok(())
    }
}

/// Reads and checks files (directories, `-` for standard input), and gives their objects.
pub fn load(paths: &[PathBuf], purpose: Purpose) -> Result<Manifests, Rejected> {
    load_sources(read(paths), purpose)
}

/// Checks what was read, and gives its objects.
pub fn load_sources(sources: Sources, purpose: Purpose) -> Result<Manifests, Rejected> {
    let mut findings = examine(&sources, purpose);
    if findings.iter().any(Finding::is_error) {
        return Err(Rejected { findings });
    }
    let mut manifests = Manifests::default();
    let mut errors = Vec::new();
    for document in sources.documents {
        if let Err(finding) = manifests.add(document) {
            errors.push(*finding);
        }
    }
    if !errors.is_empty() {
        findings.extend(errors);
        return Err(Rejected { findings });
    }
    manifests.warnings = findings;
    Ok(manifests)
}

impl Manifests {
    /// The `ConfigMap` of that name.
    pub fn config_map(&self, namespace: Option<&str>, name: &str) -> Option<&ConfigMap> {
        find(&self.config_maps, namespace, name)
    }

    /// The Secret of that name.
    pub fn secret(&self, namespace: Option<&str>, name: &str) -> Option<&Secret> {
        find(&self.secrets, namespace, name)
    }

    /// The pool of that name.
    pub fn pool(&self, namespace: Option<&str>, name: &str) -> Option<&SGLangPool> {
        find(&self.pools, namespace, name)
    }

    fn add(&mut self, document: Document) -> Result<(), Box<Finding>> {
        match (document.api_version(), document.kind()) {
            (Some(meta::API_VERSION), Some(meta::JOB_KIND)) => self.jobs.push(typed(document)?),
            (Some(meta::API_VERSION), Some(meta::POOL_KIND)) => self.pools.push(typed(document)?),
            (Some("v1"), Some("ConfigMap")) => self.config_maps.push(typed(document)?),
            (Some("v1"), Some("Secret")) => self.secrets.push(typed(document)?),
            (api_version, kind) => self.others.push(Other {
                api_version: api_version.unwrap_or_default().to_owned(),
                kind: kind.unwrap_or_default().to_owned(),
                name: document.name().unwrap_or_default().to_owned(),
                document,
            }),
        }
        Ok(())
    }
}

fn typed<K: DeserializeOwned>(document: Document) -> Result<Loaded<K>, Box<Finding>> {
    match serde_json::from_value(document.value.clone()) {
        Ok(object) => Ok(Loaded { object, document }),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            let finding = Finding::about(&document, Severity::Error, "", message);
            Err(Box::new(finding))
        }
    }
}

fn find<'a, K>(loaded: &'a [Loaded<K>], namespace: Option<&str>, name: &str) -> Option<&'a K> {
    loaded
        .iter()
        .find(|loaded| {
            loaded.document.name() == Some(name)
                && loaded.document.namespace().unwrap_or("default")
                    == namespace.unwrap_or("default")
        })
        .map(|loaded| &loaded.object)
}
