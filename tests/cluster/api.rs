//! The API server: one client per test, definitions installed once, a namespace per test.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use rollout_operator::api::{crd, meta};
use serde_json::{Value, json};

/// Longest wait for anything that the control plane does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client, with both definitions in force.
pub(crate) async fn client() -> Client {
    let client = Client::try_default()
        .await
        .expect("these tests run inside a cluster: ./test cluster");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, definition) in crd::all() {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("tests").force().validation_strict();
        definitions
            .patch(name, &params, &Patch::Apply(&definition))
            .await
            .unwrap();
        let established =
            await_condition(definitions.clone(), name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established)
            .await
            .unwrap()
            .unwrap();
    }
    client
}

/// A namespace of its own for a test.
pub(crate) async fn namespace(client: &Client, name: &str) -> String {
    let name = format!("{name}-{:06x}", rand::random::<u32>() & 0xff_ffff);
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    name
}

/// The objects of one of our kinds.
pub(crate) fn objects(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(meta::GROUP, meta::VERSION, kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

pub(crate) fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}
