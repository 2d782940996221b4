//! Which pool a job uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A `SGLangPool`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// Name of the pool.
    #[schemars(length(min = 1, max = 45))]
    pub name: String,
    /// Its namespace, which must be willing (allowedNamespaces); none: the job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}
