//! What the API server refuses, and as what that counts.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::PostParams;
use rollout_operator::controllers::Class;
use serde_json::{Value, json};

use super::apply::{applier, object};
use crate::api::{client, namespace};

#[tokio::test]
async fn refusals_are_told_apart() {
    let client = client().await;
    let namespace = namespace(&client, "refused").await;
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "q"}, "spec": {"hard": {"count/services": "0"}},
    }))
    .unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), &namespace);
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    // The quota counts once its controller has seen it.
    let counted =
        kube::runtime::wait::await_condition(quotas, "q", |quota: Option<&ResourceQuota>| {
            let status = quota.and_then(|quota| quota.status.as_ref());
            status.is_some_and(|status| status.hard.is_some())
        });
    tokio::time::timeout(std::time::Duration::from_secs(30), counted)
        .await
        .unwrap()
        .unwrap();

    let pod = |containers: Value| {
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers},
        }}})
    };
    let deployment =
        |containers: Value| object(&namespace, "apps/v1", "Deployment", "d", pod(containers));
    let elsewhere = object(
        "nowhere-at-all",
        "v1",
        "ConfigMap",
        "c",
        json!({"data": {}}),
    );
    let cases = [
        (
            object(
                &namespace,
                "v1",
                "Service",
                "s",
                json!({"spec": {"ports": [{"port": 80}]}}),
            ),
            Class::Forbidden,
            "exceeded quota: q",
        ),
        (
            deployment(json!([{"name": "c", "image": "i", "surprise": 1}])),
            Class::Invalid,
            "surprise",
        ),
        (
            deployment(
                json!([{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]),
            ),
            Class::Invalid,
            "duplicate",
        ),
        (
            deployment(json!([{"name": "Not A Name", "image": "i"}])),
            Class::Invalid,
            "Not A Name",
        ),
        (
            object(
                &namespace,
                "v1",
                "ConfigMap",
                "c",
                json!({"data": {"k": 1}}),
            ),
            Class::Invalid,
            "data",
        ),
        (elsewhere, Class::NotFound, "nowhere-at-all"),
    ];
    for (object, class, words) in cases {
        let error = applier(&client).apply(&object, None).await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}
