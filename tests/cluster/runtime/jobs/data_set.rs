//! Data sets on a volume: filled by a Pod, read by the driver; what is missing is told.

use kube::api::DeleteParams;
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
