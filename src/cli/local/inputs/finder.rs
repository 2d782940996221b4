//! The files that a job's `ConfigMap`s, volumes and URLs stand for, where there is no cluster.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::ConfigMap;
use rollout_driver::download::Credentials;

use super::{Code, Content, InputError, Objects, Volumes};
use crate::api::{
    job::Dataset,
    manifest::Manifests,
    references::Target,
    values::{ClaimPath, CodeSource, ConfigMapKeyRef, SecretRef},
};

/// Finds what the manifests of one job name.
pub(super) struct Finder<'a> {
    pub(super) manifests: &'a Manifests,
    pub(super) namespace: Option<&'a str>,
    pub(super) volumes: &'a Volumes,
}

impl Finder<'_> {
    fn config_map(&self, field: &'static str, name: &str) -> Result<&ConfigMap, InputError> {
        let found = self.manifests.config_map(self.namespace, name);
        found.ok_or_else(|| InputError::NoConfigMap {
            field,
            name: name.to_owned(),
        })
    }

    pub(super) fn key(
        &self,
        field: &'static str,
        reference: &ConfigMapKeyRef,
    ) -> Result<Vec<u8>, InputError> {
        let mut files = files_of(self.config_map(field, &reference.name)?);
        files
            .remove(&reference.key)
            .ok_or_else(|| InputError::NoKey {
                field,
                name: reference.name.clone(),
                key: reference.key.clone(),
                keys: files.keys().cloned().collect(),
            })
    }

    fn volume(&self, field: &'static str, claim: &ClaimPath) -> Result<PathBuf, InputError> {
        let directory = self.volumes.get(&claim.claim_name);
        let directory = directory.ok_or_else(|| InputError::NoVolume {
            field,
            claim: claim.claim_name.clone(),
        })?;
        let path = claim
            .path
            .as_ref()
            .map_or_else(|| directory.clone(), |path| directory.join(path));
        path.canonicalize().map_err(|source| InputError::Read {
            field,
            path: path.display().to_string(),
            source,
        })
    }

    pub(super) fn code(&self, field: &'static str, code: &CodeSource) -> Result<Code, InputError> {
        match (&code.config_map, &code.persistent_volume_claim) {
            (Some(reference), _) => Ok(Code::Files(files_of(
                self.config_map(field, &reference.name)?,
            ))),
            (None, Some(claim)) => Ok(Code::Directory(self.volume(field, claim)?)),
            (None, None) => Ok(Code::Files(BTreeMap::new())),
        }
    }

    /// What the server of a data set is shown.
    fn credentials(&self, dataset: &Dataset) -> Result<Option<Credentials>, InputError> {
        let Some(SecretRef { name }) = &dataset.secret_ref else {
            return Ok(None);
        };
        let field = "spec.dataset.secretRef";
        let objects = Objects {
            manifests: self.manifests,
            namespace: self.namespace,
        };
        let keys = objects.keys(Target::Secret, name);
        let keys = keys.ok_or_else(|| InputError::NoSecret {
            field,
            name: name.clone(),
        })?;
        Credentials::from_keys(&keys)
            .map(Some)
            .map_err(|problem| InputError::NotLocal {
                field,
                problem: problem.to_string(),
            })
    }

    pub(super) fn dataset(&self, dataset: &Dataset) -> Result<Content, InputError> {
        if let Some(reference) = &dataset.config_map {
            return Ok(Content::Bytes(
                self.key("spec.dataset.configMap", reference)?,
            ));
        }
        if let Some(rows) = &dataset.inline {
            let lines = rows
                .iter()
                .map(|row| serde_json::to_string(row).unwrap_or_default() + "\n");
            return Ok(Content::Bytes(lines.collect::<String>().into_bytes()));
        }
        if let Some(claim) = &dataset.persistent_volume_claim {
            let field = "spec.dataset.persistentVolumeClaim";
            return one_file(field, self.volume(field, claim)?);
        }
        let url = dataset.url.as_deref().unwrap_or_default();
        if dataset.is_fetched() {
            return Ok(Content::Url {
                url: url.to_owned(),
                credentials: self.credentials(dataset)?,
            });
        }
        let Some(path) = url.strip_prefix("file://") else {
            let problem = format!(
                "{url} cannot be fetched yet; download the file and write file:///its/path"
            );
            return Err(InputError::NotLocal {
                field: "spec.dataset.url",
                problem,
            });
        };
        let path = Path::new(path);
        let read = |source| InputError::Read {
            field: "spec.dataset.url",
            path: path.display().to_string(),
            source,
        };
        one_file("spec.dataset.url", path.canonicalize().map_err(read)?)
    }
}

fn one_file(field: &'static str, path: PathBuf) -> Result<Content, InputError> {
    if path.is_dir() {
        return Err(InputError::Read {
            field,
            path: path.display().to_string(),
            source: io::ErrorKind::IsADirectory.into(),
        });
    }
    Ok(Content::File(path))
}

/// The keys of a `ConfigMap`, texts and binary data alike.
fn files_of(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let texts = map
        .data
        .iter()
        .flatten()
        .map(|(key, text)| (key.clone(), text.clone().into_bytes()));
    let binary = map
        .binary_data
        .iter()
        .flatten()
        .map(|(key, bytes)| (key.clone(), bytes.0.clone()));
    texts.chain(binary).collect()
}
