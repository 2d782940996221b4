//! A namespace with a controller, for tests of pools whose engines run and of jobs on them.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use rollout_operator::api::meta::{self, labels};
use serde_json::{Value, json};

use super::controller::{Controller, until};
use super::pools::{condition, create, pool, samples_claim};
use crate::api::{client, end, namespace, objects};

/// Simulated engines that ask for next to nothing: the node has two cores for all tests.
pub(super) fn small_engines(replicas: i32, simulator: &Value) -> Value {
    let small = json!({"requests": {"cpu": "1m", "memory": "16Mi"}});
    json!({
        "replicas": replicas,
        "engine": {
            "contextLength": 4096,
            "simulator": simulator,
            "template": {"spec": {"containers": [{"name": "engine", "resources": small}]}},
        },
    })
}

/// The namespace.
pub(super) struct Field {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) controller: Controller,
    pub(super) pools: Api<DynamicObject>,
    pub(super) jobs: Api<DynamicObject>,
}

impl Field {
    pub(super) async fn new(name: &str) -> Self {
        Self::with(name, &[]).await
    }

    /// One whose controller has further arguments.
    pub(super) async fn with(name: &str, more: &[&str]) -> Self {
        let client = client().await;
        let namespace = namespace(&client, name).await;
        create(&client, &samples_claim(&namespace)).await;
        Self {
            controller: Controller::ready(&namespace, more).await,
            pools: objects(&client, &namespace, meta::POOL_KIND),
            jobs: objects(&client, &namespace, meta::JOB_KIND),
            client,
            namespace,
        }
    }

    pub(super) async fn end(self) {
        end(self.client, &self.namespace).await;
    }

    pub(super) async fn pool(&self, name: &str, spec: &Value) {
        create(&self.client, &pool(&self.namespace, name, spec)).await;
    }

    /// What a job wrote.
    pub(super) async fn file(&self, path: &str) -> String {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader", "namespace": self.namespace},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "it", "image": "localhost/tiny:1", "command": ["/bin/busybox", "cat", format!("/data/{path}")],
                    "volumeMounts": [{"name": "samples", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "samples", "persistentVolumeClaim": {"claimName": "samples"}}],
            },
        });
        create(&self.client, &pod).await;
        let pods = self.all::<Pod>();
        let mut phase = String::new();
        self.until(&format!("{path} is read"), async || {
            let status = pods.get("reader").await.unwrap().status;
            phase = status.and_then(|status| status.phase).unwrap_or_default();
            matches!(phase.as_str(), "Succeeded" | "Failed")
        })
        .await;
        let text = pods.logs("reader", &LogParams::default()).await.unwrap();
        assert_eq!(phase, "Succeeded", "{path}: {text}");
        pods.delete("reader", &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
        self.until("the reader is gone", async || {
            pods.get_opt("reader").await.unwrap().is_none()
        })
        .await;
        text
    }

    /// Four samples of one turn, where `more` says nothing else.
    pub(super) async fn job(&self, name: &str, pool: &str, more: &Value) {
        let small = json!({"requests": {"cpu": "1m", "memory": "16Mi"}});
        let mut spec = json!({
            "poolRef": {"name": pool},
            "dataset": {"inline": [{"prompt": "One?"}, {"prompt": "Two?"}]},
            "rollout": {"batchSize": 2, "samplesPerPrompt": 2},
            "sampling": {"maxNewTokens": 32},
            "generate": {"singleTurn": {}},
            "teardown": {"drainSeconds": 2, "abortHookSeconds": 2},
            "output": {"persistentVolumeClaim": {"claimName": "samples"}},
            "driver": {
                "resources": small,
                "template": {"spec": {"initContainers": [{"name": "router", "resources": small}]}},
            },
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

    pub(super) async fn pool_becomes(&self, pool: &str, kind: &str, wanted: &str) {
        self.becomes(&self.pools, pool, kind, wanted).await;
    }

    pub(super) async fn job_becomes(&self, job: &str, kind: &str, wanted: &str) {
        self.becomes(&self.jobs, job, kind, wanted).await;
    }

    async fn becomes(&self, api: &Api<DynamicObject>, name: &str, kind: &str, wanted: &str) {
        let mut seen = String::new();
        let what = format!("{name}: {kind}={wanted}");
        until(&what, &self.controller, async || {
            let now = condition(api, name, kind).await;
            if now != seen {
                eprintln!("{name}: {kind}={now}");
                seen = now;
            }
            seen == wanted
        })
        .await;
    }

    pub(super) async fn until(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        until(what, &self.controller, holds).await;
    }

    pub(super) async fn edit(&self, pool: &str, patch: &Value) {
        self.pools
            .patch(pool, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(super) async fn pool_status(&self, pool: &str) -> Value {
        self.pools.get(pool).await.unwrap().data["status"].clone()
    }

    pub(super) async fn job_status(&self, job: &str) -> Value {
        self.jobs.get(job).await.unwrap().data["status"].clone()
    }

    /// The message of a pool's condition.
    pub(super) async fn said(&self, pool: &str, kind: &str) -> String {
        let status = self.pool_status(pool).await;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions
            .iter()
            .find(|condition| condition["type"] == kind);
        found.map_or(String::new(), |found| {
            found["message"].as_str().unwrap().to_owned()
        })
    }

    pub(super) fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A pool's engines that are not leaving.
    pub(super) async fn engines(&self, pool: &str) -> Vec<Pod> {
        let selector = format!("{}={pool},{}=engine", labels::POOL, labels::COMPONENT);
        let params = ListParams::default().labels(&selector);
        let pods = self.all::<Pod>().list(&params).await.unwrap();
        pods.into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .collect()
    }

    /// Their UIDs, in order.
    pub(super) async fn engine_uids(&self, pool: &str) -> Vec<String> {
        let mut uids: Vec<_> = self
            .engines(pool)
            .await
            .iter()
            .filter_map(Pod::uid)
            .collect();
        uids.sort();
        uids
    }
}
