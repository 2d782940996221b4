//! What is deleted, and what is left.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::{Patch, PatchParams};
use rollout_operator::controllers::runtime::calls::{Calls, Identity};
use rollout_operator::controllers::runtime::election::Leadership;
use rollout_operator::controllers::runtime::prune;
use serde_json::{Value, json};

use super::apply::{applier, live, object};
use crate::api::{client, namespace};

async fn made(client: &Client, namespace: &str, name: &str, owner: &Value) -> Value {
    let mut wanted = object(namespace, "v1", "ConfigMap", name, json!({"data": {}}));
    wanted["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "controller": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
    applier(client).apply(&wanted, None).await.unwrap();
    live(client, &wanted).await
}

#[tokio::test]
async fn only_the_owners_own_unwanted_objects_go() {
    let client = client().await;
    let namespace = namespace(&client, "prune").await;
    let mut owners = Vec::new();
    for name in ["owner", "other"] {
        let owner = object(&namespace, "v1", "ConfigMap", name, json!({"data": {}}));
        applier(&client).apply(&owner, None).await.unwrap();
        owners.push(live(&client, &owner).await);
    }
    let wanted = made(&client, &namespace, "wanted", &owners[0]).await;
    let unwanted = made(&client, &namespace, "unwanted", &owners[0]).await;
    let changed = made(&client, &namespace, "changed", &owners[0]).await;
    let others = made(&client, &namespace, "others", &owners[1]).await;
    let mut unlabelled = made(&client, &namespace, "unlabelled", &owners[0]).await;
    unlabelled["metadata"]["labels"] = json!({});
    // Somebody takes it over after it was seen.
    let identity = Identity::of(&changed).unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    let api = identity.api(&client);
    api.patch("changed", &PatchParams::default(), &patch)
        .await
        .unwrap();

    let found = [
        &wanted,
        &unwanted,
        &changed,
        &others,
        &unlabelled,
        &owners[0],
    ];
    let keep = BTreeSet::from([Identity::of(&wanted).unwrap()]);
    let uid = owners[0]["metadata"]["uid"].as_str().unwrap();
    let victims = prune::unwanted(uid, &keep, found);
    let names: Vec<_> = victims
        .iter()
        .map(|victim| victim.identity.name.as_str())
        .collect();
    assert_eq!(names, ["changed", "unwanted"]);
    let calls = Calls::new(client.clone(), Leadership::always());
    prune::delete(&calls, &victims).await.unwrap();
    // A second time: they are gone.
    prune::delete(&calls, &victims).await.unwrap();

    let left = api.list(&kube::api::ListParams::default()).await.unwrap();
    let mut left: Vec<_> = left
        .into_iter()
        .filter_map(|object| object.metadata.name)
        .filter(|name| name != "kube-root-ca.crt")
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "changed",
            "other",
            "others",
            "owner",
            "unlabelled",
            "wanted"
        ]
    );
}
