//! A namespace for jobs: a pool of simulated engines, a volume for samples, and a controller.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use rollout_operator::api::meta::{self, labels};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{client, end, namespace, objects};
use crate::runtime::controller::{Controller, until, within};
use crate::runtime::pools::{condition, create, pool, samples_claim};

/// A namespace with a pool of simulated engines, a volume for samples, and a controller.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) controller: Controller,
    pub(crate) jobs: Api<DynamicObject>,
}

impl Place {
    pub(crate) async fn new(name: &str) -> Self {
        Self::with(name, &[]).await
    }

    /// With a controller that looks at other namespaces too.
    pub(crate) async fn with(name: &str, others: &[&str]) -> Self {
        let place = Self::without_pool(name, others).await;
        create(&place.client, &pool(&place.namespace, "pool", &engines())).await;
        place
    }

    /// A place whose test makes its pools.
    pub(crate) async fn without_pool(name: &str, others: &[&str]) -> Self {
        let client = client().await;
        let namespace = namespace(&client, name).await;
        let more: Vec<_> = others
            .iter()
            .flat_map(|other| ["--namespace", other])
            .collect();
        let controller = Controller::ready(&namespace, &more).await;
        create(&client, &samples_claim(&namespace)).await;
        let place = Self {
            jobs: objects(&client, &namespace, meta::JOB_KIND),
            client,
            namespace,
            controller,
        };
        place.open_samples().await;
        place
    }

    /// The same controller, and another of its namespaces.
    pub(crate) async fn moved_to(self, namespace: &str) -> Self {
        let jobs = objects(&self.client, namespace, meta::JOB_KIND);
        create(&self.client, &samples_claim(namespace)).await;
        let place = Self {
            namespace: namespace.to_owned(),
            jobs,
            ..self
        };
        place.open_samples().await;
        place
    }

    /// The cluster's volumes are directories of root, which no fsGroup changes.
    async fn open_samples(&self) {
        let command = ["/bin/busybox", "chmod", "777", "/data"];
        self.run("prepare", "localhost/tiny:1", &command, 0).await;
    }

    /// Makes room for the next test.
    pub(crate) async fn end(self) {
        for job in self.jobs.list(&ListParams::default()).await.unwrap() {
            self.jobs
                .delete(&job.name_any(), &DeleteParams::default())
                .await
                .unwrap();
        }
        until("every job is gone", &self.controller, async || {
            let jobs = self.jobs.list(&ListParams::default()).await.unwrap();
            jobs.items.is_empty()
        })
        .await;
        end(self.client, &self.namespace).await;
    }

    /// Runs a command beside the samples to its end; answers its words.
    pub(crate) async fn run(&self, name: &str, image: &str, command: &[&str], user: i64) -> String {
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
        self.run_pod(name, &pod).await
    }

    /// Runs a Pod to its end; answers its words.
    pub(crate) async fn run_pod(&self, name: &str, pod: &Value) -> String {
        create(&self.client, pod).await;
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
        let mut words = Ok(String::new());
        // The node's kubelet may just have been started again.
        until(
            &format!("{name} can be read"),
            &self.controller,
            async || {
                words = pods.logs(name, &LogParams::default()).await;
                words.is_ok()
            },
        )
        .await;
        let words = words.unwrap();
        assert_eq!(phase, "Succeeded", "{name}: {words}");
        words
    }

    pub(crate) async fn job(&self, name: &str, more: &Value) {
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
            "output": {"persistentVolumeClaim": {"claimName": "samples", "path": name}},
            "driver": {
                "resources": small(),
                "template": {"spec": {"initContainers": [{"name": "router", "resources": small()}]}},
            },
        });
        for (field, value) in more.as_object().unwrap() {
            match (field.as_str(), value.as_object()) {
                ("driver", Some(members)) => {
                    for (member, value) in members {
                        spec["driver"][member] = value.clone();
                    }
                }
                _ => spec[field] = value.clone(),
            }
        }
        spec.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        let job = json!({
            "apiVersion": meta::API_VERSION, "kind": meta::JOB_KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        });
        create(&self.client, &job).await;
    }

    pub(crate) async fn becomes(&self, job: &str, kind: &str, wanted: &str) {
        until(
            &format!("{job}: {kind}={wanted}"),
            &self.controller,
            async || condition(&self.jobs, job, kind).await == wanted,
        )
        .await;
    }

    /// Waits until engines take work.
    pub(crate) async fn becomes_ready(&self, pool: &str) {
        let pools = objects(&self.client, &self.namespace, meta::POOL_KIND);
        until(&format!("{pool} is ready"), &self.controller, async || {
            condition(&pools, pool, "Ready").await == "True/AsExpected"
        })
        .await;
    }

    /// The words of a condition.
    pub(crate) async fn said(&self, job: &str, kind: &str) -> String {
        let status = self.status(job).await;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions
            .iter()
            .find(|condition| condition["type"] == kind);
        found.map_or(String::new(), |found| {
            found["message"].as_str().unwrap().to_owned()
        })
    }

    pub(crate) async fn is_gone(&self, job: &str) {
        until(&format!("{job} is gone"), &self.controller, async || {
            self.jobs.get_opt(job).await.unwrap().is_none() && self.of::<Pod>(job).await.is_empty()
        })
        .await;
        self.nothing_left(job).await;
    }

    pub(crate) async fn status(&self, job: &str) -> Value {
        self.jobs.get(job).await.unwrap().data["status"].clone()
    }

    /// Waits longer than for what should happen at once.
    pub(crate) async fn comes_true(
        &self,
        what: &str,
        limit: Duration,
        holds: impl AsyncFnMut() -> bool,
    ) {
        within(limit, what, &self.controller, holds).await;
    }

    /// No event of the job warns of anything.
    pub(crate) async fn no_warnings(&self, job: &str) {
        let fields = format!("involvedObject.name={job},type=Warning");
        let params = ListParams::default().fields(&fields);
        let events = self.all::<Event>().list(&params).await.unwrap();
        let said: Vec<_> = events.items.iter().map(|event| &event.message).collect();
        assert!(said.is_empty(), "{said:?}");
    }

    pub(crate) async fn merge(&self, job: &str, patch: Value) {
        self.jobs
            .patch(job, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Agents that run a script in a busybox.
    pub(crate) fn agentic(script: &str) -> Value {
        let agent = json!({"name": "agent", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sh", "-c", script]});
        json!({"agentic": {"agent": {"container": {"template": {"spec": {"containers": [agent]}}}}}})
    }

    /// Names of a kind's objects that belong to a job.
    pub(crate) async fn of<K>(&self, job: &str) -> Vec<String>
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
    pub(crate) async fn nothing_left(&self, job: &str) {
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

    /// Of a job's Pods its drivers' are left, and they alone.
    pub(crate) async fn only_drivers_left(&self, job: &str) {
        until(
            &format!("only drivers of {job} are left"),
            &self.controller,
            async || {
                let left = self.of::<Pod>(job).await;
                left.iter().all(|name| name.contains("-driver-"))
            },
        )
        .await;
    }

    /// Checks the samples of the job that is called `job`.
    pub(crate) async fn verify(&self) {
        self.verify_in("verify", "job").await;
    }

    pub(crate) async fn verify_in(&self, pod: &str, folder: &str) {
        let folder = format!("/data/{folder}");
        let command = ["/usr/bin/rollout-operator", "samples", "verify", &folder];
        self.run(pod, "localhost/rollout-operator:dev", &command, 65532)
            .await;
    }
}

/// One turn, and the end. The static busybox looks no names up by itself.
pub(crate) const CALL: &str = r#"
    b=/bin/busybox
    rest=${OPENAI_BASE_URL#http://}; host=${rest%%/*}; path=/${rest#*/}
    address=$($b nslookup -type=a "${host%:*}" | $b awk '/^Address/ && !/:53$/ {print $2}' | $b tail -n 1)
    $b wget -q -O - --header 'content-type: application/json' --header "host: $host" \
        --post-data '{"model": "m", "messages": [{"role": "user", "content": "One?"}]}' "http://$address:${host#*:}$path/chat/completions"
"#;

/// Engines that answer fast, and leave room on a small node.
pub(crate) fn engines() -> Value {
    let template = json!({"spec": {"containers": [{"name": "engine", "resources": small()}]}});
    json!({"engine": {"contextLength": 4096, "simulator": {"timeScale": 4}, "template": template}})
}

fn small() -> Value {
    json!({"requests": {"cpu": "1m", "memory": "32Mi"}})
}

/// Sampling that outlasts a test.
pub(crate) fn endless() -> Value {
    json!({
        "rollout": {"batchSize": 2, "samplesPerPrompt": 2, "filter": {"type": "NonzeroRewardStd"}},
        "dataset": {"labelKey": "label", "inline": [{"prompt": [{"role": "user", "content": "One?"}], "label": "no answer"}]},
        "reward": {"type": "Math"},
    })
}
