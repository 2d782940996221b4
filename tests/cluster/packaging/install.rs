//! Install, upgrade, uninstall: by plain manifests and by Helm.

use serde_json::{Value, json};

use super::tools::{
    NAMESPACE, RELEASE, eventually, helm, helm_install, install_manifest, kubectl, kubectl_can,
    kubectl_with, nothing_installed, object,
};

const ACCOUNT: &str = "system:serviceaccount:rollout-system:rollout-operator";

async fn operator_runs() {
    let deployment = format!("deployment/{RELEASE}");
    kubectl(&[
        "-n",
        NAMESPACE,
        "rollout",
        "status",
        &deployment,
        "--timeout=120s",
    ])
    .await;
}

/// Who may do what, as `kubectl auth can-i` says.
async fn may(who: &str, question: &str) -> bool {
    kubectl_can(&can_i(who, question)).await
}

fn can_i<'a>(who: &'a str, question: &'a str) -> Vec<&'a str> {
    let question = question.split(' ');
    ["auth", "can-i", "--as", who]
        .into_iter()
        .chain(question)
        .collect()
}

/// A pool and a job that start nothing.
async fn suspended_pool_and_job() {
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "SGLangPool",
            "metadata": {"name": "kept", "namespace": "default"},
            "spec": {"suspend": true, "model": {"path": "simulated", "servedName": "default"}, "engine": {"simulator": {}}},
        },
        {
            "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "RolloutJob",
            "metadata": {"name": "kept", "namespace": "default"},
            "spec": {
                "suspend": true, "poolRef": {"name": "kept"},
                "dataset": {"configMap": {"name": "problems", "key": "train.jsonl"}, "labelKey": "label"},
                "rollout": {"batchSize": 2, "samplesPerPrompt": 2}, "sampling": {"maxNewTokens": 256}, "generate": {"singleTurn": {}}, "reward": {"type": "Math"},
                "output": {"persistentVolumeClaim": {"claimName": "samples"}},
            },
        },
    ]});
    kubectl_with(&["apply", "-f", "-"], &objects.to_string()).await;
}

/// What must not change of the pool and the job: who they are, and what their user wrote.
async fn kept() -> Vec<(Value, Value)> {
    let list = object(&["sglangpool/kept", "rolloutjob/kept", "-n", "default"]).await;
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| (item["metadata"]["uid"].clone(), item["spec"].clone()))
        .collect()
}

/// The operator has worked on the pool, and was refused nothing.
async fn rights_were_enough() {
    let seen = "--for=jsonpath={.status.observedGeneration}=1";
    kubectl(&[
        "-n",
        "default",
        "wait",
        seen,
        "sglangpool/kept",
        "--timeout=60s",
    ])
    .await;
    let path = format!(
        "/api/v1/namespaces/{NAMESPACE}/services/rollout-operator-metrics:http/proxy/metrics"
    );
    let metrics = kubectl(&["get", "--raw", &path]).await;
    let calls: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("rollout_operator_api_requests_total"))
        .collect();
    assert!(
        calls.iter().any(|call| call.contains(r#"verb="patch""#)),
        "{calls:?}"
    );
    assert!(
        !calls.iter().any(|call| call.contains(r#"code="403""#)),
        "{calls:?}"
    );
}

#[tokio::test]
async fn plain_manifests_install_and_go() {
    nothing_installed().await;
    let manifest = install_manifest();
    kubectl(&["apply", "-f", &manifest]).await;
    operator_runs().await;

    // Now that the namespace is there, the server checks every object.
    kubectl(&[
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        &manifest,
    ])
    .await;
    let again = kubectl(&["apply", "-f", &manifest]).await;
    assert!(
        again.lines().all(|line| line.ends_with(" unchanged")),
        "{again}"
    );

    let key = object(&["-n", NAMESPACE, "secret/rollout-operator-key"]).await;
    assert_eq!(key["immutable"], true);

    for question in [
        "get secrets --all-namespaces",
        "list secrets --all-namespaces",
        "watch secrets --all-namespaces",
        "create pods --subresource=exec --all-namespaces",
        "list nodes",
    ] {
        assert!(!may(ACCOUNT, question).await, "the operator may {question}");
    }
    for question in [
        "get secrets/rollout-operator-key -n rollout-system",
        "watch rolloutjobs.rollout-operator.dev --all-namespaces",
    ] {
        assert!(
            may(ACCOUNT, question).await,
            "the operator may not {question}"
        );
    }

    kubectl(&["delete", "--timeout=90s", "-f", &manifest]).await;
    assert!(!kubectl_can(&["get", "namespace", NAMESPACE]).await);
}

#[tokio::test]
async fn users_roles_hold_pools_and_jobs() {
    nothing_installed().await;
    kubectl(&["apply", "-f", &install_manifest()]).await;
    for role in ["view", "edit"] {
        let bind =
            format!("create rolebinding {role} --clusterrole {role} --user {role} -n default");
        kubectl(&bind.split(' ').collect::<Vec<_>>()).await;
    }
    let list = "list rolloutjobs.rollout-operator.dev -n default";
    let create = "create rolloutjobs.rollout-operator.dev -n default";
    // The aggregation takes a moment.
    eventually(&can_i("view", list)).await;
    eventually(&can_i("edit", create)).await;
    assert!(!may("view", create).await);
    assert!(
        may(
            "edit",
            "patch sglangpools.rollout-operator.dev --subresource=scale -n default"
        )
        .await
    );
    assert!(
        !may(
            "edit",
            "patch rolloutjobs.rollout-operator.dev --subresource=status -n default"
        )
        .await
    );
    kubectl(&["delete", "rolebinding", "view", "edit", "-n", "default"]).await;
    nothing_installed().await;
}

#[tokio::test]
async fn a_release_is_upgraded_and_uninstalled_without_losing_pools_and_jobs() {
    nothing_installed().await;
    helm_install(&[]).await;
    suspended_pool_and_job().await;
    rights_were_enough().await;
    let before = kept().await;
    assert_eq!(before.len(), 2);
    let key = object(&["-n", NAMESPACE, "secret/rollout-operator-key"]).await;

    helm_install(&[
        "replicas=2",
        "podAnnotations.upgraded=yes",
        "podDisruptionBudget.enabled=true",
    ])
    .await;
    operator_runs().await;
    assert_eq!(kept().await, before);

    helm(&[
        "uninstall",
        RELEASE,
        "--namespace",
        NAMESPACE,
        "--wait",
        "--timeout=60s",
    ])
    .await;
    assert!(!kubectl_can(&["-n", NAMESPACE, "get", "deployment", RELEASE]).await);
    assert_eq!(kept().await, before);

    // The same release again takes the definitions back, and works with the key that it had.
    helm_install(&[]).await;
    assert_eq!(kept().await, before);
    let after = object(&["-n", NAMESPACE, "secret/rollout-operator-key"]).await;
    assert_eq!(after["data"], key["data"]);
    assert_eq!(after["metadata"]["uid"], key["metadata"]["uid"]);
    nothing_installed().await;
}

#[tokio::test]
async fn listed_namespaces_need_no_cluster_role() {
    nothing_installed().await;
    kubectl(&["create", "namespace", "team-a"]).await;
    helm_install(&["namespaces={default,team-a}"]).await;
    suspended_pool_and_job().await;
    rights_were_enough().await;
    let ours = ["-l", "app.kubernetes.io/part-of=rollout-operator"];
    let cluster_wide =
        object(&[&["clusterroles,clusterrolebindings"], ours.as_slice()].concat()).await;
    assert_eq!(cluster_wide["items"], json!([]));
    for namespace in ["default", "team-a"] {
        assert!(may(ACCOUNT, &format!("create pods -n {namespace}")).await);
    }
    for namespace in ["kube-public", NAMESPACE] {
        assert!(!may(ACCOUNT, &format!("create pods -n {namespace}")).await);
    }
    nothing_installed().await;
    kubectl(&["delete", "namespace", "team-a"]).await;
}
