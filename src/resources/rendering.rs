//! What all objects have from the installation, not from a spec.

use serde_json::{Value, json};

/// The installation that objects are rendered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendering {
    /// Image of the operator: routers, drivers, launchers, shims, simulated engines and engine sidecars run it. Its entry point is the binary.
    pub image: String,
    /// Secrets to pull images with, in the namespace of each Pod.
    pub image_pull_secrets: Vec<String>,
    /// Version of the operator.
    pub version: String,
    /// Namespace of the controller, which may read states; none: the controller is outside of the cluster, and everybody may.
    pub operator_namespace: Option<String>,
    /// Domain of the cluster's DNS, as in `cluster.local`.
    pub cluster_domain: String,
    /// Addresses of the cluster's DNS, as `address/bits`: agents may ask them besides its Pods in kube-system.
    pub dns_addresses: Vec<String>,
}

impl Rendering {
    /// The pull secrets, as a Pod names them.
    pub(super) fn pull_secrets(&self) -> Vec<Value> {
        let names = self.image_pull_secrets.iter();
        names.map(|name| json!({"name": name})).collect()
    }

    /// Name of a Service in DNS.
    pub(super) fn service_host(&self, service: &str, namespace: &str) -> String {
        format!("{service}.{namespace}.svc.{}", self.cluster_domain)
    }
}
