//! Where driver and router get tokenizer files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::Model;
use crate::api::rules::Rules;
use crate::api::values::{ClaimPath, ConfigMapRef, SecretKeyRef};

/// A source of tokenizer files (`tokenizer.json`, `tokenizer_config.json`, the chat template). None of them: the engine's own files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Tokenizer {
    /// Every key of a `ConfigMap` as a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapRef>,
    /// A directory on a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimPath>,
    /// Base URL that the file names are appended to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^https?://"))]
    pub url: Option<String>,
    /// The files are on a model hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugging_face: Option<TokenizerHub>,
}

impl Tokenizer {
    /// Whether it says anything: one that is empty stands for the engine's own files.
    pub fn names_files(&self) -> bool {
        *self != Self::default()
    }
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema).at_most_one(
        &["configMap", "persistentVolumeClaim", "url", "huggingFace"],
        "set at most one of configMap, persistentVolumeClaim, url and huggingFace; none means the engine's own files",
    );
}

/// Tokenizer files on a model hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenizerHub {
    /// Hub id of the model; none: the pool's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// Branch, tag or commit on the hub; none: the hub's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub revision: Option<String>,
    /// Token for gated files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKeyRef>,
    /// Another hub than huggingface.co.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^https?://"))]
    pub endpoint: Option<String>,
}

impl TokenizerHub {
    /// The hub id to load from: its own, else that of the pool's model.
    pub fn path_or<'a>(&'a self, model: Option<&'a Model>) -> Option<&'a str> {
        self.path
            .as_deref()
            .or_else(|| model.map(|model| model.path.as_str()))
    }
}
