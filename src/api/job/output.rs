//! Where samples are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::{Rules, undescribed};
use crate::api::values::{ClaimPath, SecretRef};

/// Where samples are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Output {
    /// A place: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///directory`; each step is a file below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// A directory on a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimPath>,
    /// Credentials for url: every key of the Secret is an environment variable (`AWS_ACCESS_KEY_ID`, ...).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Formats of the samples. Default: Jsonl.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub formats: Vec<OutputFormat>,
    /// Compression of Jsonl files. Default: None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Writes dropped, aborted and surplus samples too, in files of their own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_all: bool,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .exactly_one(
            &["url", "persistentVolumeClaim"],
            "set exactly one of url and persistentVolumeClaim",
        )
        .field(
            "url",
            "!has(self.url) || self.url.matches('^(s3|gs|az|file)://[^ ]+$')",
            "write url as s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory",
        )
        .field(
            "secretRef",
            "!has(self.secretRef) || has(self.url)",
            "secretRef holds the credentials of url: set url, or remove secretRef",
        );
}

/// Format of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum OutputFormat {
    /// One JSON object a line.
    #[default]
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

/// Compression of Jsonl files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum Compression {
    /// Plain text.
    #[default]
    None,
    /// Zstandard.
    Zstd,
}
