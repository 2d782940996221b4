//! What Pod templates, containers and variables name. Where Kubernetes lets it be absent, it is no reference.

use serde_json::Value;

use super::{Need, References, Target};
use crate::api::manifest::path;
use crate::api::values::{EnvVar, Template};

impl References {
    /// References of environment variables. Those that may be absent are left out.
    pub(super) fn env(&mut self, variables: &[EnvVar], at: &str) {
        for (position, variable) in variables.iter().enumerate() {
            let Some(source) = &variable.value_from else {
                continue;
            };
            let source = Value::Object(source.0.clone());
            self.source(&source, &path::index(at, position));
        }
    }

    /// References of a Pod template. Of its containers `local` runs the one at `own` alone, and mounts nothing.
    pub(super) fn template(&mut self, template: &Template, at: &str, own: Option<&str>) {
        let before = self.0.len();
        let spec = template.0.get("spec").cloned().unwrap_or_default();
        let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        for (position, volume) in list("volumes").iter().enumerate() {
            self.volume(volume, &format!("{at}.spec.volumes[{position}]"));
        }
        for field in ["initContainers", "containers"] {
            for (position, container) in list(field).iter().enumerate() {
                self.container(container, &format!("{at}.spec.{field}[{position}]"));
            }
        }
        let below = |path: &str, own: &str| {
            path.strip_prefix(own)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        for reference in &mut self.0[before..] {
            if !own.is_some_and(|own| below(&reference.path, own)) {
                reference.need = Need::Cluster;
            }
        }
    }

    /// References of a volume, but for what may be absent.
    fn volume(&mut self, volume: &Value, at: &str) {
        if let Some(name) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            self.claim(Some(name), &format!("{at}.persistentVolumeClaim.claimName"));
        }
        self.files(volume, at, "secretName");
        let sources = volume["projected"]["sources"].as_array();
        for (position, source) in sources.into_iter().flatten().enumerate() {
            self.files(
                source,
                &format!("{at}.projected.sources[{position}]"),
                "name",
            );
        }
    }

    /// Files from a `ConfigMap` or a Secret, which is named by another field in a volume of its own.
    fn files(&mut self, source: &Value, at: &str, of_secret: &str) {
        for (field, target, named_by) in [
            ("configMap", Target::ConfigMap, "name"),
            ("secret", Target::Secret, of_secret),
        ] {
            let files = &source[field];
            let (false, Some(name)) = (files["optional"] == true, files[named_by].as_str()) else {
                continue;
            };
            let items = files["items"].as_array().cloned().unwrap_or_default();
            if items.is_empty() {
                self.push(&format!("{at}.{field}.{named_by}"), target, name, None);
            }
            for (position, item) in items.iter().enumerate() {
                let at = format!("{at}.{field}.items[{position}].key");
                self.push(&at, target, name, item["key"].as_str());
            }
        }
    }

    /// References of the environment of a container of the user's.
    pub(super) fn container(&mut self, container: &Value, at: &str) {
        let list = |field: &str| container[field].as_array().into_iter().flatten();
        for (position, variable) in list("env").enumerate() {
            self.source(&variable["valueFrom"], &format!("{at}.env[{position}]"));
        }
        for (position, source) in list("envFrom").enumerate() {
            for (field, target) in [
                ("configMapRef", Target::ConfigMap),
                ("secretRef", Target::Secret),
            ] {
                let reference = &source[field];
                if let (false, Some(name)) =
                    (reference["optional"] == true, reference["name"].as_str())
                {
                    self.push(
                        &format!("{at}.envFrom[{position}].{field}"),
                        target,
                        name,
                        None,
                    );
                }
            }
        }
    }

    /// What a variable's value comes from, unless it may be absent.
    fn source(&mut self, source: &Value, variable: &str) {
        for (field, target) in [
            ("configMapKeyRef", Target::ConfigMap),
            ("secretKeyRef", Target::Secret),
        ] {
            let reference = &source[field];
            if let (false, Some(name), Some(key)) = (
                reference["optional"] == true,
                reference["name"].as_str(),
                reference["key"].as_str(),
            ) {
                let at = format!("{variable}.valueFrom.{field}");
                self.push(&at, target, name, Some(key));
            }
        }
    }
}
