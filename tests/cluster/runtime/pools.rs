//! The pool controller: what it says about a spec, and what it makes of it.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use rollout_operator::api::meta;
use rollout_operator::controllers::runtime::calls::Identity;
use serde_json::{Value, json};

use super::controller::{Controller, until};
use crate::api::{client, dynamic, namespace, objects};

pub(crate) fn pool(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": meta::API_VERSION,
        "kind": meta::POOL_KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

/// Where jobs of a namespace write.
pub(crate) fn samples_claim(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "samples", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

pub(crate) async fn create(client: &Client, object: &Value) {
    let identity = Identity::of(object).unwrap();
    identity
        .api(client)
        .create(&PostParams::default(), &dynamic(object))
        .await
        .unwrap();
}

async fn merge(api: &Api<DynamicObject>, name: &str, patch: &Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// `status/reason` of a condition, once it is about the current spec.
pub(crate) async fn condition(api: &Api<DynamicObject>, name: &str, kind: &str) -> String {
    let pool = api.get(name).await.unwrap();
    let status = &pool.data["status"];
    if status["observedGeneration"] != json!(pool.metadata.generation) {
        return "not seen yet".to_owned();
    }
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind);
    found.map_or("none".to_owned(), |found| {
        format!(
            "{}/{}",
            found["status"].as_str().unwrap(),
            found["reason"].as_str().unwrap()
        )
    })
}

async fn message(api: &Api<DynamicObject>, name: &str, kind: &str) -> String {
    let pool = api.get(name).await.unwrap();
    let conditions = pool.data["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind);
    found.map_or(String::new(), |found| {
        found["message"].as_str().unwrap().to_owned()
    })
}

/// Names of a kind's objects.
async fn names(client: &Client, namespace: &str, api_version: &str, kind: &str) -> Vec<String> {
    let any = json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": "x"}});
    let api = Identity::of(&any).unwrap().api(client);
    let list = api.list(&ListParams::default()).await.unwrap();
    list.into_iter()
        .filter_map(|object| object.metadata.name)
        .collect()
}

#[tokio::test]
async fn a_spec_that_cannot_work_is_told_and_heals_when_it_is_edited() {
    let client = client().await;
    let namespace = namespace(&client, "bad-pool").await;
    let controller = Controller::ready(&namespace, &[]).await;
    let api = objects(&client, &namespace, meta::POOL_KIND);
    let privileged = json!({"spec": {"automountServiceAccountToken": true}});
    let spec = json!({"replicas": 0, "engine": {"simulator": {}, "template": privileged}});
    create(&client, &pool(&namespace, "p", &spec)).await;
    until("the spec is refused", &controller, async || {
        condition(&api, "p", "Stalled").await == "True/InvalidSpec"
    })
    .await;
    assert!(
        message(&api, "p", "Stalled").await.contains("credentials"),
        "{}",
        message(&api, "p", "Stalled").await
    );
    assert_eq!(condition(&api, "p", "Ready").await, "False/InvalidSpec");
    assert_eq!(
        names(&client, &namespace, "apps/v1", "Deployment").await,
        [""; 0]
    );

    merge(
        &api,
        "p",
        &json!({"spec": {"engine": {"template": null}, "idle": {"afterSeconds": 60}}}),
    )
    .await;
    until("what is not built is told", &controller, async || {
        condition(&api, "p", "Stalled").await == "True/NotSupported"
    })
    .await;
    merge(&api, "p", &json!({"spec": {"idle": null}})).await;
    until("the pool is made", &controller, async || {
        condition(&api, "p", "Stalled").await == "False/AsExpected"
    })
    .await;
    until(
        "no engine is wanted, and none is there",
        &controller,
        async || condition(&api, "p", "Ready").await == "True/AsExpected",
    )
    .await;
    assert_eq!(
        names(&client, &namespace, "apps/v1", "Deployment").await,
        ["p-engine"]
    );
}

#[tokio::test]
async fn a_pool_has_its_objects_and_loses_what_its_spec_no_longer_asks_for() {
    let client = client().await;
    let namespace = namespace(&client, "pool").await;
    let controller = Controller::ready(&namespace, &[]).await;
    let api = objects(&client, &namespace, meta::POOL_KIND);
    let spec = json!({"replicas": 0, "engine": {"simulator": {}}, "router": {"replicas": 1}});
    create(&client, &pool(&namespace, "p", &spec)).await;
    until("both Deployments are there", &controller, async || {
        names(&client, &namespace, "apps/v1", "Deployment").await == ["p-engine", "p-router"]
    })
    .await;
    until("the endpoint is told", &controller, async || {
        let pool = api.get("p").await.unwrap();
        pool.data["status"]["endpoint"] == format!("http://p-router.{namespace}.svc:8080")
    })
    .await;
    merge(&api, "p", &json!({"spec": {"router": null}})).await;
    until("the router is gone", &controller, async || {
        names(&client, &namespace, "apps/v1", "Deployment").await == ["p-engine"]
            && names(&client, &namespace, "v1", "Service").await == ["p-engines"]
    })
    .await;
    // Deleted by hand: made again.
    let engine = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": "p-engines"}});
    let identity = Identity::of(&engine).unwrap();
    let before = identity
        .api(&client)
        .get("p-engines")
        .await
        .unwrap()
        .metadata
        .uid;
    identity
        .api(&client)
        .delete("p-engines", &DeleteParams::default())
        .await
        .unwrap();
    until("the Service is back", &controller, async || {
        let there = identity.api(&client).get_opt("p-engines").await.unwrap();
        there.is_some_and(|there| there.metadata.uid != before)
    })
    .await;
    api.delete("p", &DeleteParams::default()).await.unwrap();
    until("everything goes with the pool", &controller, async || {
        names(&client, &namespace, "apps/v1", "Deployment")
            .await
            .is_empty()
            && names(&client, &namespace, "v1", "Service").await.is_empty()
            && names(&client, &namespace, "policy/v1", "PodDisruptionBudget")
                .await
                .is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_pool_of_another_manager_is_left_alone() {
    let client = client().await;
    let namespace = namespace(&client, "managed").await;
    let controller = Controller::ready(&namespace, &[]).await;
    let api = objects(&client, &namespace, meta::POOL_KIND);
    let mine = json!({"replicas": 0, "engine": {"simulator": {}}});
    let mut theirs = mine.clone();
    theirs["managedBy"] = json!("example.com/other");
    create(&client, &pool(&namespace, "theirs", &theirs)).await;
    create(&client, &pool(&namespace, "mine", &mine)).await;
    until("ours is made", &controller, async || {
        condition(&api, "mine", "Ready").await == "True/AsExpected"
    })
    .await;
    // What the definition fills in, and no more.
    let untouched = json!({"observedGeneration": -1});
    assert_eq!(api.get("theirs").await.unwrap().data["status"], untouched);
    assert_eq!(
        names(&client, &namespace, "apps/v1", "Deployment").await,
        ["mine-engine"]
    );
}

#[tokio::test]
async fn a_name_that_is_taken_is_told_and_its_owner_keeps_it() {
    let client = client().await;
    let namespace = namespace(&client, "taken-name").await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": "p-engines"},
        "spec": {"ports": [{"port": 1}]},
    });
    create(&client, &theirs).await;
    let controller = Controller::ready(&namespace, &[]).await;
    let api = objects(&client, &namespace, meta::POOL_KIND);
    let spec = json!({"replicas": 0, "engine": {"simulator": {}}});
    create(&client, &pool(&namespace, "p", &spec)).await;
    until("the pool says so", &controller, async || {
        condition(&api, "p", "Stalled").await == "True/ApplyRefused"
    })
    .await;
    let said = message(&api, "p", "Stalled").await;
    assert!(said.contains("p-engines exists already"), "{said}");
    let identity = Identity::of(&theirs).unwrap();
    let kept = identity.api(&client).get("p-engines").await.unwrap();
    assert_eq!(kept.data["spec"]["ports"][0]["port"], 1);
    // Its owner lets it go: nobody edits the pool.
    identity
        .api(&client)
        .delete("p-engines", &DeleteParams::default())
        .await
        .unwrap();
    until("the pool heals by itself", &controller, async || {
        condition(&api, "p", "Ready").await == "True/AsExpected"
    })
    .await;
}

#[tokio::test]
async fn a_quota_is_told_in_its_own_words_and_heals() {
    let client = client().await;
    let namespace = namespace(&client, "quota").await;
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), &namespace);
    let quota = serde_json::from_value(
        json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}),
    )
    .unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let controller = Controller::ready(&namespace, &[]).await;
    let api = objects(&client, &namespace, meta::POOL_KIND);
    let spec = json!({"replicas": 1, "engine": {"simulator": {}}});
    create(&client, &pool(&namespace, "p", &spec)).await;
    until("the quota is told", &controller, async || {
        condition(&api, "p", "Stalled").await == "True/QuotaExceeded"
    })
    .await;
    let said = message(&api, "p", "Stalled").await;
    assert!(said.contains("exceeded quota: small"), "{said}");
    quotas
        .delete("small", &DeleteParams::default())
        .await
        .unwrap();
    // The ReplicaSet's own patience grows; a new number makes it try at once.
    merge(&api, "p", &json!({"spec": {"replicas": 2}})).await;
    until("engines start", &controller, async || {
        names(&client, &namespace, "v1", "Pod").await.len() == 2
    })
    .await;
    until("the quota is forgotten", &controller, async || {
        !condition(&api, "p", "Stalled").await.contains("Quota")
    })
    .await;
}
