//! A job from its manifest to samples on a volume, and its other ends.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use rollout_operator::api::meta::{self, labels};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::controller::{Controller, until};
use super::pools::{condition, create, pool};
use crate::api::{client, namespace, objects};

/// A namespace with a pool of simulated engines, a volume for samples, and a controller.
struct Place {
    client: Client,
    namespace: String,
    controller: Controller,
    jobs: Api<DynamicObject>,
}

impl Place {
    async fn new(name: &str) -> Self {
        let client = client().await;
        let namespace = namespace(&client, name).await;
        let controller = Controller::ready(&namespace, &[]).await;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "samples", "namespace": namespace},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        create(&client, &claim).await;
        let place = Self {
            jobs: objects(&client, &namespace, meta::JOB_KIND),
            client,
            namespace,
            controller,
        };
        // The cluster's volumes are directories of root, which no fsGroup changes.
        place
            .run(
                "prepare",
                "localhost/tiny:1",
                &["/bin/busybox", "chmod", "777", "/data"],
                0,
            )
            .await;
        let engines = json!({"engine": {"contextLength": 4096, "simulator": {"timeScale": 4}}});
        create(&place.client, &pool(&place.namespace, "pool", &engines)).await;
        place
    }

    /// Runs a command beside the samples to its end; answers its words.
    async fn run(&self, name: &str, image: &str, command: &[&str], user: i64) -> String {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "securityContext": {"runAsUser": user},
                "containers": [{
                    "name": "it", "image": image, "command": command,
                    "volumeMounts": [{"name": "samples", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "samples", "persistentVolumeClaim": {"claimName": "samples"}}],
            },
        });
        create(&self.client, &pod).await;
        let pods: Api<Pod> = self.all();
        let mut phase = String::new();
        until(&format!("{name} ends"), &self.controller, async || {
            let pod = pods.get(name).await.unwrap();
            phase = pod
                .status
                .and_then(|status| status.phase)
                .unwrap_or_default();
            matches!(phase.as_str(), "Succeeded" | "Failed")
        })
        .await;
        let words = pods.logs(name, &LogParams::default()).await.unwrap();
        assert_eq!(phase, "Succeeded", "{name}: {words}");
        words
    }

    async fn job(&self, name: &str, more: &Value) {
        let mut spec = json!({
            "poolRef": {"name": "pool"},
            "dataset": {"inline": [
                {"prompt": [{"role": "user", "content": "One?"}]},
                {"prompt": [{"role": "user", "content": "Two?"}]},
            ]},
            "rollout": {"batchSize": 2, "samplesPerPrompt": 2, "concurrency": {"sessions": 3}},
            "sampling": {"maxNewTokens": 32},
            "generate": {"singleTurn": {}},
            "teardown": {"drainSeconds": 2, "abortHookSeconds": 2},
            "output": {"persistentVolumeClaim": {"claimName": "samples"}},
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let job = json!({
            "apiVersion": meta::API_VERSION, "kind": meta::JOB_KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        });
        create(&self.client, &job).await;
    }

    async fn becomes(&self, job: &str, kind: &str, wanted: &str) {
        until(
            &format!("{job}: {kind}={wanted}"),
            &self.controller,
            async || condition(&self.jobs, job, kind).await == wanted,
        )
        .await;
    }

    async fn status(&self, job: &str) -> Value {
        self.jobs.get(job).await.unwrap().data["status"].clone()
    }

    async fn merge(&self, job: &str, patch: Value) {
        self.jobs
            .patch(job, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Names of a kind's objects that belong to a job.
    async fn of<K>(&self, job: &str) -> Vec<String>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let selector = format!("{}={job}", labels::JOB);
        let params = ListParams::default().labels(&selector);
        let list = self.all::<K>().list(&params).await.unwrap();
        list.into_iter().map(|object| object.name_any()).collect()
    }

    /// Nothing of a job is there any more, but for Pods.
    async fn nothing_left(&self, job: &str) {
        until(
            &format!("{job} leaves nothing"),
            &self.controller,
            async || {
                self.of::<Service>(job).await.is_empty()
                    && self.of::<ConfigMap>(job).await.is_empty()
                    && self.of::<Secret>(job).await.is_empty()
                    && self.of::<NetworkPolicy>(job).await.is_empty()
                    && self.of::<PersistentVolumeClaim>(job).await.is_empty()
            },
        )
        .await;
    }

    async fn verify(&self) {
        let command = ["/usr/bin/rollout-operator", "samples", "verify", "/data"];
        self.run("verify", "localhost/rollout-operator:dev", &command, 65532)
            .await;
    }
}

/// Sampling that outlasts a test.
fn endless() -> Value {
    json!({
        "rollout": {"batchSize": 2, "samplesPerPrompt": 2, "filter": {"type": "NonzeroRewardStd"}},
        "dataset": {"labelKey": "label", "inline": [{"prompt": [{"role": "user", "content": "One?"}], "label": "no answer"}]},
        "reward": {"type": "Math"},
    })
}

#[tokio::test]
async fn a_single_turn_job_ends_with_samples_and_leaves_only_its_driver() {
    let place = Place::new("single").await;
    place.job("job", &json!({})).await;
    place.becomes("job", "Complete", "True/TargetReached").await;
    let status = place.status("job").await;
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["attempt"], 1);
    assert_eq!(status["display"], json!({"groups": "2/2", "pool": "pool"}));
    assert_eq!(status["output"]["samples"], 4);
    place.nothing_left("job").await;
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    until("the job is free", &place.controller, async || {
        place
            .jobs
            .get("job")
            .await
            .unwrap()
            .metadata
            .finalizers
            .is_none()
    })
    .await;
    // A finished job is never written again.
    let version = place.jobs.get("job").await.unwrap().resource_version();
    place.verify().await;
    assert_eq!(
        place.jobs.get("job").await.unwrap().resource_version(),
        version
    );
}

#[tokio::test]
async fn an_agentic_job_gets_its_pods_by_slot_and_generation() {
    // The static busybox looks no names up by itself.
    let script = r#"
        b=/bin/busybox
        rest=${OPENAI_BASE_URL#http://}; host=${rest%%/*}; path=/${rest#*/}
        address=$($b nslookup -type=a "${host%:*}" | $b awk '/^Address/ && !/:53$/ {print $2}' | $b tail -n 1)
        $b wget -q -O - --header 'content-type: application/json' --header "host: $host" \
            --post-data '{"model": "m", "messages": [{"role": "user", "content": "One?"}]}' "http://$address:${host#*:}$path/chat/completions"
    "#;
    let agent = json!({"name": "agent", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sh", "-c", script]});
    let place = Place::new("agentic").await;
    let container = json!({"template": {"spec": {"containers": [agent]}}});
    place
        .job(
            "job",
            &json!({"generate": {"agentic": {"agent": {"container": container}}}}),
        )
        .await;
    let mut seen = std::collections::BTreeSet::new();
    until("the job is complete", &place.controller, async || {
        seen.extend(place.of::<Pod>("job").await);
        condition(&place.jobs, "job", "Complete").await == "True/TargetReached"
    })
    .await;
    for name in ["job-agent-0-1", "job-agent-1-1", "job-agent-2-1"] {
        assert!(seen.contains(name), "{seen:?}");
    }
    // Four sessions, three at once, one to a Pod.
    assert!(seen.iter().any(|name| name.ends_with("-2")), "{seen:?}");
    let status = place.status("job").await;
    assert_eq!(status["progress"]["sessions"]["infraFailed"], 0, "{status}");
    assert_eq!(status["progress"]["sessions"]["agentFailed"], 0, "{status}");
    place.nothing_left("job").await;
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    place.verify().await;
}

#[tokio::test]
async fn a_job_is_suspended_resumed_and_deleted() {
    let place = Place::new("suspended").await;
    place.job("job", &endless()).await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    place.merge("job", json!({"spec": {"suspend": true}})).await;
    place.becomes("job", "Suspended", "True/Suspended").await;
    until("the driver is gone", &place.controller, async || {
        place.of::<Pod>("job").await.is_empty()
    })
    .await;
    place
        .merge("job", json!({"spec": {"suspend": false}}))
        .await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    assert_eq!(place.status("job").await["attempt"], 2);
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-2"]);
    let foreground = DeleteParams::foreground();
    place.jobs.delete("job", &foreground).await.unwrap();
    until("the job is gone", &place.controller, async || {
        place.jobs.get_opt("job").await.unwrap().is_none()
    })
    .await;
    place.nothing_left("job").await;
    until("its pods are gone", &place.controller, async || {
        place.of::<Pod>("job").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_job_fails_at_its_deadline_with_what_it_has() {
    let place = Place::new("deadline").await;
    let mut spec = endless();
    spec["activeDeadlineSeconds"] = json!(5);
    place.job("job", &spec).await;
    place
        .becomes("job", "Failed", "True/DeadlineExceeded")
        .await;
    assert_eq!(place.status("job").await["phase"], "Failed");
    place.nothing_left("job").await;
}

#[tokio::test]
async fn a_controller_that_was_killed_is_followed_by_one_that_goes_on() {
    let mut place = Place::new("killed").await;
    place.job("job", &endless()).await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    place.controller.signal(nix::sys::signal::Signal::SIGKILL);
    place.controller.end().await;
    let driver = place.all::<Pod>().get("job-driver-1").await.unwrap().uid();
    place.controller = Controller::ready(&place.namespace, &[]).await;
    let before = place.status("job").await["progress"]["groups"]["filtered"].as_i64();
    until("progress goes on", &place.controller, async || {
        place.status("job").await["progress"]["groups"]["filtered"].as_i64() > before
    })
    .await;
    assert_eq!(place.status("job").await["attempt"], 1);
    assert_eq!(
        place.all::<Pod>().get("job-driver-1").await.unwrap().uid(),
        driver
    );
}

#[tokio::test]
async fn the_session_of_a_deleted_agents_pod_runs_again_in_another() {
    let place = Place::new("lost-agent").await;
    let agent = json!({"name": "agent", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sleep", "3600"]});
    let container = json!({"template": {"spec": {"containers": [agent]}}});
    let one = json!({
        "generate": {"agentic": {"agent": {"container": container}}},
        "rollout": {"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 1}},
    });
    place.job("job", &one).await;
    let pods = place.all::<Pod>();
    until("the agent works", &place.controller, async || {
        let pod = pods.get_opt("job-agent-0-1").await.unwrap();
        let status = pod.and_then(|pod| pod.status);
        status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
    })
    .await;
    pods.delete("job-agent-0-1", &DeleteParams::default())
        .await
        .unwrap();
    // While it ends, its slot is taken: another slot has the work.
    until("its session runs again", &place.controller, async || {
        let pod = pods.get_opt("job-agent-1-1").await.unwrap();
        let status = pod.and_then(|pod| pod.status);
        status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
            && place.status("job").await["progress"]["sessions"]["infraFailed"] == 1
    })
    .await;
    assert_eq!(place.status("job").await["phase"], "Running");
    place
        .jobs
        .delete("job", &DeleteParams::default())
        .await
        .unwrap();
    until("nothing runs", &place.controller, async || {
        place.of::<Pod>("job").await.is_empty()
            && place.jobs.get_opt("job").await.unwrap().is_none()
    })
    .await;
}
