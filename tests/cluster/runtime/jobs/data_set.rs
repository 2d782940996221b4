//! Data sets on a volume: filled by a Pod, read by the driver; what is missing is told. Data sets behind a URL: fetched by the driver.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, LogParams};
use serde_json::{Value, json};

use super::place::Place;
use crate::runtime::controller::until;
use crate::runtime::pools::create;

/// A volume for rows.
async fn claim(place: &Place) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "problems", "namespace": place.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create(&place.client, &claim).await;
}

/// Writes rows to it, as whoever has data does.
async fn fill(place: &Place) {
    let rows = r#"{"prompt": "One?", "label": "1"}\n{"prompt": "Two?", "label": "2"}\n"#;
    let script = format!(
        "/bin/busybox mkdir -p /data/math && /bin/busybox printf '{rows}' > /data/math/train.jsonl"
    );
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "fill", "namespace": place.namespace},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "it", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sh", "-c", script],
                "volumeMounts": [{"name": "rows", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "rows", "persistentVolumeClaim": {"claimName": "problems"}}],
        },
    });
    place.run_pod("fill", &pod).await;
}

fn on_claim(path: &str) -> Value {
    json!({"dataset": {"persistentVolumeClaim": {"claimName": "problems", "path": path}, "labelKey": "label"}})
}

#[tokio::test]
async fn rows_come_from_a_volume_and_one_that_is_missing_is_told() {
    let place = Place::new("rows").await;
    place.job("early", &on_claim("math/train.jsonl")).await;
    place
        .becomes("early", "Stalled", "True/ReferenceNotFound")
        .await;
    let said = place.said("early", "Stalled").await;
    let words = "spec.dataset.persistentVolumeClaim.claimName: there is no PersistentVolumeClaim";
    assert!(said.contains(words), "{said}");
    assert_eq!(place.status("early").await["attempt"], 0);
    // It would begin before the volume is filled.
    place
        .jobs
        .delete("early", &DeleteParams::default())
        .await
        .unwrap();
    place.is_gone("early").await;
    claim(&place).await;
    fill(&place).await;
    place.job("job", &on_claim("math/train.jsonl")).await;
    place.becomes("job", "Complete", "True/TargetReached").await;
    place.verify().await;
    place.end().await;
}

#[tokio::test]
async fn a_file_that_is_not_on_its_volume_ends_the_job_with_claim_and_file() {
    let place = Place::new("no-file").await;
    claim(&place).await;
    fill(&place).await;
    let mut spec = on_claim("math/test.jsonl");
    spec["backoffLimit"] = json!(0);
    place.job("job", &spec).await;
    until("the job has failed", &place.controller, async || {
        place.status("job").await["phase"] == "Failed"
    })
    .await;
    let status = place.status("job").await.to_string();
    let words = "spec.dataset.persistentVolumeClaim: math/test.jsonl on the claim problems: cannot read the data set";
    assert!(status.contains(words), "{status}");
    place.end().await;
}

/// Serves rows to those who know the word.
async fn store(place: &Place) {
    let rows = r#"{"prompt": "One?", "label": "1"}\n{"prompt": "Two?", "label": "2"}\n"#;
    let script = format!(
        "b=/bin/busybox; $b mkdir /tmp/www && $b printf '/:me:word\\n' > /tmp/conf && $b printf '{rows}' > /tmp/www/train.jsonl && exec $b httpd -f -v -p 8080 -h /tmp/www -c /tmp/conf"
    );
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "store", "namespace": place.namespace, "labels": {"app": "store"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "it", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sh", "-c", script],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            }],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "store", "namespace": place.namespace},
        "spec": {"selector": {"app": "store"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    create(&place.client, &pod).await;
    create(&place.client, &service).await;
}

/// The word, as people keep it.
async fn keys(place: &Place) {
    let keys = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth",
        "metadata": {"name": "keys", "namespace": place.namespace},
        "stringData": {"username": "me", "password": "word"},
    });
    create(&place.client, &keys).await;
}

#[tokio::test]
async fn rows_behind_a_url_are_fetched_with_a_secret_and_what_is_not_given_ends_the_job() {
    let place = Place::new("by-url").await;
    store(&place).await;
    keys(&place).await;
    let at = |file: &str, more: Value| {
        let url = format!("http://store.{}.svc.cluster.local/{file}", place.namespace);
        let mut dataset = json!({"url": url, "labelKey": "label"});
        dataset
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"dataset": dataset})
    };
    let known = json!({"secretRef": {"name": "keys"}});
    place.job("job", &at("train.jsonl", known.clone())).await;
    place.job("absent", &at("test.jsonl", known)).await;
    place.job("stranger", &at("train.jsonl", json!({}))).await;
    place.becomes("job", "Complete", "True/TargetReached").await;
    place.verify().await;
    for (job, words) in [
        ("absent", "/test.jsonl has no such file (404)"),
        ("stranger", "/train.jsonl asks for credentials (401)"),
    ] {
        place.becomes(job, "Failed", "True/DatasetUnusable").await;
        let said = place.said(job, "Failed").await;
        assert!(
            said.starts_with("spec.dataset.url: http://store."),
            "{said}"
        );
        assert!(said.contains(words), "{said}");
    }
    let pods: Api<Pod> = place.all();
    let log = pods.logs("store", &LogParams::default()).await.unwrap();
    let given = log.lines().filter(|line| line.contains("response:200"));
    assert_eq!(given.count(), 1, "{log}");
    place.end().await;
}
