//! The control plane: a client, the definitions, and waits that end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use rollout_operator::api::{crd, meta};
use rollout_operator::controllers::runtime::calls::Identity;
use serde_json::{Value, json};

/// Objects that are made at once.
const AT_ONCE: usize = 16;
/// Longest wait for anything; a thousand jobs on two cores take minutes.
const PATIENCE: Duration = Duration::from_mins(20);

/// A client, with both definitions in force.
pub(crate) async fn client() -> Client {
    let client = Client::try_default()
        .await
        .unwrap_or_else(|error| panic!("inside a cluster only: {error}"));
    for (_, mut definition) in crd::all() {
        definition["metadata"]["namespace"] = Value::Null;
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("bench").force();
        api.patch(&name, &params, &Patch::Apply(&definition))
            .await
            .unwrap();
        until(&format!("{name} is served"), async || {
            let found = api.get(&name).await.unwrap();
            let conditions = found.data["status"]["conditions"].as_array().cloned();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            })
        })
        .await;
    }
    client
}

/// Makes a namespace.
pub(crate) async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

/// Makes an object.
pub(crate) async fn create(client: &Client, object: &Value) {
    let api = Identity::of(object).unwrap().api(client);
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Makes many, some at once.
pub(crate) async fn create_all(client: &Client, objects: &[Value]) {
    stream::iter(objects)
        .for_each_concurrent(AT_ONCE, |object| create(client, object))
        .await;
}

/// Jobs or pools of all namespaces.
pub(crate) async fn all(client: &Client, kind: &str) -> Vec<DynamicObject> {
    let kind = GroupVersionKind::gvk(meta::GROUP, meta::VERSION, kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    api.list(&ListParams::default()).await.unwrap().items
}

/// Jobs or pools of a namespace.
pub(crate) fn objects(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(meta::GROUP, meta::VERSION, kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// Whether a condition is True.
pub(crate) fn holds(object: &DynamicObject, condition: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|found| found["type"] == condition && found["status"] == "True")
}

/// Lets Pods onto a node, or not.
pub(crate) async fn cordon(client: &Client, node: &str, closed: bool) {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let patch = json!({"spec": {"unschedulable": closed}});
    nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Where the cluster keeps its logs.
pub(crate) fn logs() -> PathBuf {
    let kubeconfig = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    kubeconfig.parent().unwrap().join("log")
}
