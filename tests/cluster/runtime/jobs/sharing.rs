//! Pools and jobs: a pool of a job's own, one that is shared, one of another namespace, one that is deleted.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject};
use rollout_operator::api::meta::{self, labels};
use serde_json::{Value, json};

use super::place::{Place, endless, engines};
use crate::api::{client, namespace, objects};
use crate::runtime::controller::until;
use crate::runtime::pools::{condition, create, pool};

fn pools(place: &Place) -> Api<DynamicObject> {
    objects(&place.client, &place.namespace, meta::POOL_KIND)
}

/// A spec with a pool of the job's own.
fn own(mut spec: Value) -> Value {
    spec["poolRef"] = Value::Null;
    spec["pool"] = engines();
    spec
}

#[tokio::test]
async fn a_pool_of_the_jobs_own_is_made_used_and_removed_with_it() {
    let place = Place::new("own-pool").await;
    place.job("job", &own(json!({}))).await;
    let (mut seen, mut bound) = (None, false);
    until("the job is complete", &place.controller, async || {
        if let Some(pool) = pools(&place).get_opt("job").await.unwrap() {
            bound |= pool.data["status"]["boundJobs"] == 1;
            seen = Some(pool);
        }
        condition(&place.jobs, "job", "Complete").await == "True/TargetReached"
    })
    .await;
    let seen = seen.expect("the pool was there");
    assert!(bound, "it has a job that uses it");
    let uid = place.jobs.get("job").await.unwrap().uid();
    assert_eq!(seen.labels().get(labels::JOB_UID), uid.as_ref());
    let status = place.status("job").await;
    assert_eq!(status["display"], json!({"groups": "2/2", "pool": "job"}));
    until("the pool is gone", &place.controller, async || {
        pools(&place).get_opt("job").await.unwrap().is_none()
    })
    .await;
    place.nothing_left("job").await;
    place.verify().await;
    place.end().await;
}

#[tokio::test]
async fn a_pool_of_the_jobs_own_goes_with_a_job_that_is_deleted_and_comes_back_with_one_that_runs()
{
    let place = Place::new("own-pool-deleted").await;
    place.job("job", &own(endless())).await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    let first = pools(&place).get("job").await.unwrap().uid();
    // Deleted by hand: the job has its pool again.
    pools(&place)
        .delete("job", &DeleteParams::default())
        .await
        .unwrap();
    until("the pool is back", &place.controller, async || {
        let pool = pools(&place).get_opt("job").await.unwrap();
        pool.is_some_and(|pool| pool.uid() != first)
    })
    .await;
    assert_eq!(place.status("job").await["attempt"], 1);
    place
        .jobs
        .delete("job", &DeleteParams::background())
        .await
        .unwrap();
    place.is_gone("job").await;
    assert!(pools(&place).get_opt("job").await.unwrap().is_none());
    place.end().await;
}

#[tokio::test]
async fn somebody_elses_pool_is_not_taken_for_the_jobs_own() {
    let place = Place::new("foreign-pool").await;
    place.job("pool", &own(json!({}))).await;
    place.becomes("pool", "Stalled", "True/ApplyRefused").await;
    let said = place.said("pool", "Stalled").await;
    assert!(said.contains("pool exists already"), "{said}");
    assert_eq!(place.status("pool").await["attempt"], 0);
    place
        .jobs
        .delete("pool", &DeleteParams::default())
        .await
        .unwrap();
    until("the job is gone", &place.controller, async || {
        place.jobs.get_opt("pool").await.unwrap().is_none()
    })
    .await;
    pools(&place).get("pool").await.unwrap();
    place.end().await;
}

#[tokio::test]
async fn a_job_that_is_deleted_leaves_the_requests_of_another_on_its_pool() {
    let place = Place::new("two-jobs").await;
    place.job("stays", &endless()).await;
    place.job("goes", &endless()).await;
    place.becomes("stays", "Sampling", "True/AsExpected").await;
    place.becomes("goes", "Sampling", "True/AsExpected").await;
    place
        .jobs
        .delete("goes", &DeleteParams::default())
        .await
        .unwrap();
    place.is_gone("goes").await;
    let before = place.status("stays").await["progress"]["groups"]["filtered"].as_i64();
    until("the other one goes on", &place.controller, async || {
        place.status("stays").await["progress"]["groups"]["filtered"].as_i64() > before
    })
    .await;
    let progress = &place.status("stays").await["progress"];
    for count in ["aborted", "infraFailed"] {
        assert_eq!(progress["sessions"][count], 0, "{progress}");
    }
    assert_eq!(progress["groups"]["failed"], 0, "{progress}");
    assert_eq!(place.of::<Pod>("stays").await, ["stays-driver-1"]);
    place.end().await;
}

#[tokio::test]
async fn a_job_whose_pool_is_deleted_fails_with_what_it_has() {
    let place = Place::new("pool-lost").await;
    place.job("job", &endless()).await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    pools(&place)
        .delete("pool", &DeleteParams::default())
        .await
        .unwrap();
    place.becomes("job", "Failed", "True/PoolLost").await;
    place.nothing_left("job").await;
    assert_eq!(place.status("job").await["phase"], "Failed");
    place.end().await;
}

#[tokio::test]
async fn a_job_uses_the_pool_of_another_namespace_once_it_is_allowed() {
    let theirs = namespace(&client().await, "pools").await;
    let place = Place::with("far-pool", &[&theirs]).await;
    create(&place.client, &pool(&theirs, "far", &engines())).await;
    let far = json!({"poolRef": {"name": "far", "namespace": theirs}});
    place.job("job", &far).await;
    place.becomes("job", "Stalled", "True/PoolNotAllowed").await;
    let api = objects(&place.client, &theirs, meta::POOL_KIND);
    let allowed = json!({"spec": {"allowedNamespaces": [place.namespace]}});
    api.patch(
        "far",
        &kube::api::PatchParams::default(),
        &kube::api::Patch::Merge(allowed),
    )
    .await
    .unwrap();
    place.becomes("job", "Complete", "True/TargetReached").await;
    let shown = format!("{theirs}/far");
    assert_eq!(place.status("job").await["display"]["pool"], shown.as_str());
    place.verify().await;
    place.end().await;
}

#[tokio::test]
async fn a_pool_that_the_operator_does_not_look_at_is_not_called_missing() {
    let place = Place::new("out-of-sight").await;
    let far = json!({"poolRef": {"name": "far", "namespace": "elsewhere"}});
    place.job("job", &far).await;
    place
        .becomes("job", "Stalled", "True/ReferenceNotFound")
        .await;
    let said = place.said("job", "Stalled").await;
    assert!(said.contains("does not look at that namespace"), "{said}");
    place.end().await;
}
