//! The image runs where everything is refused that can be: not as root, nothing to write to, no capability. It finds names by DNS.

use serde_json::{Value, json};

use super::tools::{kubectl, kubectl_with};

const NAMESPACE: &str = "image-test";

fn pod(name: &str, arguments: &[&str], port: u16, ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "main", "image": "localhost/rollout-operator:dev", "args": arguments,
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
                "readinessProbe": {"httpGet": {"path": ready, "port": port}, "periodSeconds": 1, "timeoutSeconds": 5},
                "volumeMounts": [{"name": "token", "mountPath": "/token"}],
            }],
            "volumes": [{"name": "token", "secret": {"secretName": "token"}}],
        },
    })
}

#[tokio::test]
async fn a_restricted_pod_runs_and_looks_names_up() {
    kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"]).await;
    let engines = format!("engines.{NAMESPACE}.svc.cluster.local:30000");
    let engine = ["simulate-engine", "--host", "0.0.0.0", "--port", "30000"];
    // Its control port answers /ready: when it has found an engine that answers.
    let router = [
        "router",
        "--engine-service",
        &engines,
        "--control-listen",
        "0.0.0.0:8081",
        "--control-token-file",
        "/token/token",
    ];
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        {
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "token", "namespace": NAMESPACE}, "stringData": {"token": "control"},
        },
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "engines", "namespace": NAMESPACE},
            "spec": {"clusterIP": "None", "selector": {"app": "engine"}, "ports": [{"name": "http", "port": 30000}]},
        },
        pod("engine", &engine, 30000, "/health"),
        pod("router", &router, 8081, "/ready"),
    ]});
    kubectl_with(&["apply", "-f", "-"], &objects.to_string()).await;
    kubectl(&[
        "-n",
        NAMESPACE,
        "wait",
        "--for=condition=Ready",
        "pod/engine",
        "pod/router",
        "--timeout=60s",
    ])
    .await;

    let version = kubectl(&[
        "-n",
        NAMESPACE,
        "exec",
        "router",
        "--",
        "/usr/bin/rollout-operator",
        "--version",
    ])
    .await;
    assert_eq!(
        version.trim(),
        format!("rollout-operator {}", env!("CARGO_PKG_VERSION"))
    );
    kubectl(&["delete", "namespace", NAMESPACE]).await;
}
