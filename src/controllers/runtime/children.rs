//! The caches of what the operator made: one per kind and namespace.

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::reflector::{ObjectRef, Store};
use serde_json::Value;

use super::calls::Identity;

/// Objects of the operator, as the API server has them.
#[derive(Clone, Default)]
pub struct Children {
    caches: Vec<Cache>,
}

#[derive(Clone)]
struct Cache {
    resource: ApiResource,
    part: Option<String>,
    store: Store<DynamicObject>,
}

impl Children {
    /// Adds a cache.
    pub fn add(
        &mut self,
        resource: ApiResource,
        part: Option<String>,
        store: Store<DynamicObject>,
    ) {
        self.caches.push(Cache {
            resource,
            part,
            store,
        });
    }

    /// Whether objects of that kind are watched. Others are written without being read.
    pub fn has(&self, api_version: &str, kind: &str) -> bool {
        self.caches
            .iter()
            .any(|cache| cache.resource.api_version == api_version && cache.resource.kind == kind)
    }

    /// One object.
    pub fn get(&self, identity: &Identity) -> Option<Value> {
        let cache = self.caches.iter().find(|cache| {
            cache.resource.api_version == identity.api_version
                && cache.resource.kind == identity.kind
                && cache.holds(&identity.namespace)
        })?;
        let reference =
            ObjectRef::new_with(&identity.name, cache.resource.clone()).within(&identity.namespace);
        raw(&*cache.store.get(&reference)?, &cache.resource)
    }

    /// All objects of a namespace with a label.
    pub fn labelled(&self, namespace: &str, label: &str, value: &str) -> Vec<Value> {
        let caches = self.caches.iter().filter(|cache| cache.holds(namespace));
        caches
            .flat_map(|cache| {
                let found = cache.store.state_filter(|object: &DynamicObject| {
                    let labels = object.metadata.labels.as_ref();
                    object.metadata.namespace.as_deref() == Some(namespace)
                        && labels
                            .and_then(|labels| labels.get(label))
                            .map(String::as_str)
                            == Some(value)
                });
                found
                    .into_iter()
                    .filter_map(|object| raw(&object, &cache.resource))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Waits until every cache was filled.
    pub async fn filled(&self) {
        for cache in &self.caches {
            // Its watch ended: a stop, which ends this wait too.
            let _ = cache.store.wait_until_ready().await;
        }
    }
}

impl Cache {
    fn holds(&self, namespace: &str) -> bool {
        self.part.as_deref().is_none_or(|part| part == namespace)
    }
}

/// Lists leave out what kind their items are.
fn raw(object: &DynamicObject, resource: &ApiResource) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = Value::String(resource.api_version.clone());
    value["kind"] = Value::String(resource.kind.clone());
    Some(value)
}
