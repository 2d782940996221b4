//! Pools of engines that run already.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::field::{Field, small_engines};
use super::pools::create;

/// Engines that another pool runs, and that everybody may use.
async fn engines_of_others(field: &Field, replicas: i32) {
    let mut spec = small_engines(replicas, &json!({"timeScale": 4}));
    spec["networkPolicy"] = json!({"enabled": false});
    field.pool("inner", &spec).await;
    field
        .pool_becomes("inner", "Ready", "True/AsExpected")
        .await;
}

#[tokio::test]
async fn engines_behind_a_service_are_asked_used_and_left_alone() {
    let field = Field::new("external").await;
    engines_of_others(&field, 2).await;
    let theirs = field.engine_uids("inner").await;
    let spec =
        json!({"external": {"service": {"name": "inner-engines", "port": 30000}}, "router": {}});
    field.pool("outer", &spec).await;
    field
        .pool_becomes("outer", "Ready", "True/AsExpected")
        .await;
    // The name may have had one address at first.
    field
        .until("both engines are listed", async || {
            field.pool_status("outer").await["display"]["engines"] == "2/2"
        })
        .await;
    let status = field.pool_status("outer").await;
    assert_eq!(status["readyReplicas"], 2, "{status}");
    assert_eq!(
        status["display"],
        json!({"engines": "2/2", "weights": "default"})
    );
    let engines = status["engines"].as_array().unwrap();
    assert_eq!(engines.len(), 2, "{status}");
    for engine in engines {
        assert_eq!(engine["ready"], true);
        assert_eq!(engine["version"], "0.5.23");
        assert_eq!(engine["weightVersion"], "default");
        assert_eq!(engine["paused"], false);
    }

    field.job("job", "outer", &json!({})).await;
    field
        .job_becomes("job", "Complete", "True/TargetReached")
        .await;
    assert_eq!(field.job_status("job").await["output"]["samples"], 4);
    assert_eq!(field.engine_uids("inner").await, theirs);

    field.edit("inner", &json!({"spec": {"replicas": 1}})).await;
    field
        .until("the list follows the Service", async || {
            field.pool_status("outer").await["display"]["engines"] == "1/1"
        })
        .await;
    // A pool that is suspended stops its router, and nobody's engines.
    let left = field.engine_uids("inner").await;
    field
        .edit("outer", &json!({"spec": {"suspend": true}}))
        .await;
    field
        .pool_becomes("outer", "Suspended", "True/Suspended")
        .await;
    assert_eq!(field.engine_uids("inner").await, left);
    field.end().await;
}

#[tokio::test]
async fn engines_by_url_that_lack_something_are_named_and_jobs_wait_for_better_ones() {
    let field = Field::new("unsuitable").await;
    let web = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": field.namespace},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "web", "image": "localhost/tiny:1", "command": ["/bin/busybox", "httpd", "-f", "-p", "30000", "-h", "/"]}],
        },
    });
    create(&field.client, &web).await;
    engines_of_others(&field, 1).await;
    let address = |pod: &Pod| {
        let status = pod.status.as_ref().unwrap();
        status.pod_ip.clone().unwrap_or_default()
    };
    let engine = address(&field.engines("inner").await[0]);
    let mut web = String::new();
    field
        .until("the web server has an address", async || {
            web = address(&field.all::<Pod>().get("web").await.unwrap());
            !web.is_empty()
        })
        .await;
    let urls = |addresses: &[&str]| -> Value {
        let urls: Vec<_> = addresses
            .iter()
            .map(|address| format!("http://{address}:30000"))
            .collect();
        json!({"external": {"urls": urls}})
    };
    field.pool("outer", &urls(&[&engine, &web])).await;
    field
        .pool_becomes("outer", "Stalled", "True/EngineUnsuitable")
        .await;
    let said = field.said("outer", "Stalled").await;
    assert_eq!(said, format!("http://{web}:30000: it has no /model_info"));
    field.job("job", "outer", &json!({})).await;
    field
        .job_becomes("job", "PoolReady", "False/Starting")
        .await;
    assert_eq!(field.job_status("job").await["attempt"], 0);

    field
        .edit("outer", &json!({"spec": urls(&[&engine])}))
        .await;
    field
        .pool_becomes("outer", "Ready", "True/AsExpected")
        .await;
    field
        .job_becomes("job", "Complete", "True/TargetReached")
        .await;
    field.end().await;
}
