//! Where an engine finds its model.

use serde_json::{Value, json};

use super::flags;
use crate::api::pool::{Model, PullPolicy};
use crate::api::values::HuggingFaceHub;
use crate::resources::volumes::{self, Mounted};

/// Where a mounted source is.
const MOUNTED: &str = "/models";
/// Where the hub's client keeps what it downloads.
const HUB: &str = "/huggingface";

/// A model in an engine's Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelFiles {
    /// What SGLang is told: a directory, or a hub id.
    pub(super) path: String,
    /// Its directory, where it is known before the engine runs.
    pub(super) directory: Option<String>,
    /// The volume with the files, or the hub's cache.
    pub(super) mounted: Option<Mounted>,
    /// Variables of the hub's client.
    pub(super) env: Vec<Value>,
    /// The chat template instead of the model's, and its file.
    pub(super) chat_template: Option<(Mounted, String)>,
}

impl ModelFiles {
    /// Whether SGLang downloads it.
    pub(super) fn is_from_hub(&self) -> bool {
        self.directory.is_none()
    }

    /// Where the sidecar finds what SGLang downloaded.
    pub(super) fn in_hub_cache(&self, model: Option<&Model>) -> Vec<String> {
        let mut arguments = vec![
            format!("--hub-cache={HUB}/hub"),
            format!("--hub-model={}", flags::literal(&self.path)),
        ];
        if let Some(revision) = model.and_then(|model| model.revision.as_ref()) {
            arguments.push(format!("--hub-revision={}", flags::literal(revision)));
        }
        arguments
    }
}

/// The files of a model.
pub(super) fn files(model: &Model) -> ModelFiles {
    let source = model.source.as_ref();
    if let Some(claim) = source.and_then(|source| source.persistent_volume_claim.as_ref()) {
        let mut mounted = Mounted::read_only(
            "model",
            MOUNTED,
            volumes::read_only_claim(&claim.claim_name),
        );
        if let Some(sub_path) = &claim.sub_path {
            mounted.mount["subPath"] = json!(sub_path);
        }
        return in_directory(model, mounted);
    }
    if let Some(image) = source.and_then(|source| source.image.as_ref()) {
        let mut volume = json!({"image": {"reference": image.reference}});
        if let Some(policy) = image.pull_policy {
            volume["image"]["pullPolicy"] = json!(pull_policy(policy));
        }
        return in_directory(model, Mounted::read_only("model", MOUNTED, volume));
    }
    let plain = HuggingFaceHub::default();
    let hub = source.and_then(|source| source.hugging_face.as_ref());
    from_hub(model, hub.unwrap_or(&plain))
}

fn in_directory(model: &Model, mounted: Mounted) -> ModelFiles {
    let directory = volumes::below(MOUNTED, Some(&model.path));
    ModelFiles {
        path: directory.clone(),
        directory: Some(directory),
        mounted: Some(mounted),
        env: vec![json!({"name": "HF_HUB_OFFLINE", "value": "1"})],
        chat_template: None,
    }
}

fn from_hub(model: &Model, hub: &HuggingFaceHub) -> ModelFiles {
    if model.path.starts_with('/') {
        // The image has it.
        return ModelFiles {
            path: model.path.clone(),
            directory: Some(model.path.clone()),
            ..ModelFiles::default()
        };
    }
    // Without a claim, what was downloaded outlives the container all the same.
    let source = hub
        .cache_claim_name
        .as_deref()
        .map_or_else(volumes::empty_dir, volumes::claim);
    let mut env = vec![json!({"name": "HF_HOME", "value": HUB})];
    if let Some(endpoint) = &hub.endpoint {
        env.push(json!({"name": "HF_ENDPOINT", "value": endpoint}));
    }
    if let Some(token) = &hub.token_secret_ref {
        env.push(json!({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": token.name, "key": token.key}}}));
    }
    ModelFiles {
        path: model.path.clone(),
        directory: None,
        mounted: Some(Mounted::writable("model", HUB, source)),
        env,
        chat_template: None,
    }
}

fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    }
}
