//! A Kubernetes object as raw JSON.

use serde_json::{Map, Value, json};

use super::owner::Owner;

/// The kinds that the operator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An identity without rights.
    ServiceAccount,
    /// Settings.
    ConfigMap,
    /// Tokens.
    Secret,
    /// A name in DNS.
    Service,
    /// Who may connect to whom.
    NetworkPolicy,
    /// How many engines may be evicted at once.
    PodDisruptionBudget,
    /// A volume of a job's own.
    PersistentVolumeClaim,
    /// Engines or routers.
    Deployment,
    /// A driver or an agent.
    Pod,
    /// The pool of a job's own.
    SGLangPool,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Secret,
        Self::Service,
        Self::NetworkPolicy,
        Self::PodDisruptionBudget,
        Self::PersistentVolumeClaim,
        Self::Deployment,
        Self::Pod,
        Self::SGLangPool,
    ];

    /// `group/version`, or `version` in the core group.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::ServiceAccount
            | Self::ConfigMap
            | Self::Secret
            | Self::Service
            | Self::PersistentVolumeClaim
            | Self::Pod => "v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::Deployment => "apps/v1",
            Self::SGLangPool => crate::api::meta::API_VERSION,
        }
    }

    /// As manifests write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Deployment => "Deployment",
            Self::Pod => "Pod",
            Self::SGLangPool => crate::api::meta::POOL_KIND,
        }
    }

    /// As URLs write it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceaccounts",
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
            Self::Service => "services",
            Self::NetworkPolicy => "networkpolicies",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::Deployment => "deployments",
            Self::Pod => "pods",
            Self::SGLangPool => "sglangpools",
        }
    }
}

/// An object that is to exist. It has only fields that the operator means: no status, no defaults of the server.
#[derive(Clone, PartialEq)]
pub struct Object {
    /// Its JSON.
    pub value: Value,
    kind: Kind,
}

impl std::fmt::Debug for Object {
    /// Without the contents, which may be secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{} {}/{}",
            self.kind.name(),
            self.namespace(),
            self.name()
        )
    }
}

impl Object {
    /// An object in the owner's namespace.
    pub(super) fn new(
        kind: Kind,
        owner: &Owner,
        name: String,
        labels: Map<String, Value>,
        body: Value,
    ) -> Self {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), Value::String(name));
        metadata.insert("namespace".to_owned(), json!(owner.namespace));
        metadata.insert("labels".to_owned(), Value::Object(labels));
        let mut value = json!({"apiVersion": kind.api_version(), "kind": kind.name()});
        value["metadata"] = Value::Object(metadata);
        if let (Some(object), Value::Object(body)) = (value.as_object_mut(), body) {
            object.extend(body);
        }
        Self { value, kind }
    }

    /// With its owner as the controller that it goes with.
    #[must_use]
    pub(super) fn owned_by(mut self, owner: &Owner) -> Self {
        self.value["metadata"]["ownerReferences"] = json!([owner.reference()]);
        self
    }

    /// With an annotation.
    #[must_use]
    pub(super) fn annotated(mut self, name: &str, text: impl Into<String>) -> Self {
        self.value["metadata"]["annotations"][name] = Value::String(text.into());
        self
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// One of its labels.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["labels"][name].as_str()
    }

    /// One of its annotations.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["annotations"][name].as_str()
    }

    fn text(&self, pointer: &str) -> &str {
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}
