//! Volumes and where they are mounted.

use serde_json::{Value, json};

use crate::api::values::CodeSource;

/// A volume with its mount in one container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mounted {
    pub(super) volume: Value,
    pub(super) mount: Value,
}

impl Mounted {
    /// A volume that can be written to.
    pub(super) fn writable(name: &str, path: &str, source: Value) -> Self {
        Self {
            volume: named(name, source),
            mount: json!({"name": name, "mountPath": path}),
        }
    }

    /// A volume that cannot.
    pub(super) fn read_only(name: &str, path: &str, source: Value) -> Self {
        Self {
            volume: named(name, source),
            mount: json!({"name": name, "mountPath": path, "readOnly": true}),
        }
    }

    /// The same volume in another container, where it cannot be written to.
    pub(super) fn read_only_mount(&self) -> Value {
        let mut mount = self.mount.clone();
        mount["readOnly"] = json!(true);
        mount
    }
}

/// The volumes of a Pod, and the mounts of its one container.
pub(super) fn split(mounts: Vec<Mounted>) -> (Vec<Value>, Vec<Value>) {
    let pairs = mounts
        .into_iter()
        .map(|Mounted { volume, mount }| (volume, mount));
    pairs.unzip()
}

fn named(name: &str, source: Value) -> Value {
    let mut volume = json!({"name": name});
    if let (Some(volume), Value::Object(source)) = (volume.as_object_mut(), source) {
        volume.extend(source);
    }
    volume
}

/// A directory that comes and goes with the Pod.
pub(super) fn empty_dir() -> Value {
    json!({"emptyDir": {}})
}

/// A claim.
pub(super) fn claim(name: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": name}})
}

/// A claim that cannot be written to.
pub(super) fn read_only_claim(name: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": name, "readOnly": true}})
}

/// All keys of a `ConfigMap`.
pub(super) fn config_map(name: &str) -> Value {
    json!({"configMap": {"name": name}})
}

/// Some keys of a `ConfigMap`.
pub(super) fn config_map_keys(name: &str, keys: &[&str]) -> Value {
    json!({"configMap": {"name": name, "items": items(keys)}})
}

/// All keys of a `Secret`.
pub(super) fn secret(name: &str) -> Value {
    json!({"secret": {"secretName": name}})
}

/// Some keys of a `Secret`.
pub(super) fn secret_keys(name: &str, keys: &[&str]) -> Value {
    json!({"secret": {"secretName": name, "items": items(keys)}})
}

/// A source whose absence is no reason to wait: whoever reads it says what is missing.
pub(super) fn optional(mut source: Value) -> Value {
    for kind in ["secret", "configMap"] {
        if let Some(source) = source.get_mut(kind) {
            source["optional"] = json!(true);
        }
    }
    source
}

fn items(keys: &[&str]) -> Vec<Value> {
    keys.iter()
        .map(|key| json!({"key": key, "path": key}))
        .collect()
}

/// Python code below `path`, and the directory that goes on the import path.
pub(super) fn code(source: &CodeSource, name: &str, path: &str) -> Option<(Mounted, String)> {
    if let Some(files) = &source.config_map {
        let mounted = Mounted::read_only(name, path, config_map(&files.name));
        return Some((mounted, path.to_owned()));
    }
    let place = source.persistent_volume_claim.as_ref()?;
    let mounted = Mounted::read_only(name, path, read_only_claim(&place.claim_name));
    Some((mounted, below(path, place.path.as_deref())))
}

/// A path below a directory. Parts that would leave it are left out; the schema has refused them before.
pub(super) fn below(directory: &str, path: Option<&str>) -> String {
    let parts = path
        .unwrap_or_default()
        .split('/')
        .filter(|part| !matches!(*part, "" | "." | ".."));
    parts.fold(directory.to_owned(), |whole, part| {
        format!("{whole}/{part}")
    })
}
