//! The API server: one client per test, definitions installed once, a namespace per test.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use rollout_operator::api::{crd, meta};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Longest wait for anything that the control plane does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client, with both definitions in force.
pub(crate) async fn client() -> Client {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let client = Client::try_default()
        .await
        .expect("these tests run inside a cluster: ./test cluster");
    INSTALLED.get_or_init(|| install(&client)).await;
    client
}

async fn install(client: &Client) {
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

/// Deletes the namespace of a test that is over, with everything that runs in it: the node has two cores for those that come after.
pub(crate) async fn end(client: Client, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces
        .delete(namespace, &DeleteParams::default())
        .await
        .unwrap();
}

/// The objects of one of our kinds.
pub(crate) fn objects(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(meta::GROUP, meta::VERSION, kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

pub(crate) fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}
