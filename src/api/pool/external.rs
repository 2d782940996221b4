//! Engines that run already.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::Rules;
use crate::api::values::{ConfigMapKeyRef, SecretKeyRef};

/// Engines that somebody else runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct External {
    /// Base URLs, one per engine, as in `http://sglang-0.sglang:30000`; https works too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 1024), regex(pattern = "^https?://[^/?#]+/?$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub urls: Vec<String>,
    /// A headless Service: every address is an engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ExternalService>,
    /// Key that the engines ask every client for (--api-key).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_secret_ref: Option<SecretKeyRef>,
    /// How engines behind https are known. Default: by the CAs that browsers trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExternalTls>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .rule(
            "(has(self.urls) && size(self.urls) > 0) != has(self.service)",
            "set exactly one of urls (one per engine) and service (a headless Service)",
        )
        .field(
            "tls",
            "!has(self.tls) || (has(self.urls) && self.urls.exists(url, url.startsWith('https://')))",
            "tls is for engines behind https: write a URL of urls with https://, or remove tls",
        );
}

/// Who vouches for engines behind https.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalTls {
    /// Certificates of the CAs that sign the engines' certificates, as PEM text. These and no others are trusted.
    pub ca_config_map_key_ref: ConfigMapKeyRef,
}

/// A headless Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalService {
    /// Name of the Service.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its namespace; none: the pool's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Port that every engine listens on.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}
