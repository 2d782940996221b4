//! The pool's spec, and what an engine of it is asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use rollout_operator::api::meta::{self, labels};
use serde_json::{Value, json};

use crate::api::objects;
use crate::runtime::jobs::place::Place;
use crate::runtime::pools::condition;

/// An engine's start, and a job, on a machine that is busy.
pub(super) const LIMIT: Duration = Duration::from_mins(4);
/// For one request.
const ANSWER: Duration = Duration::from_secs(30);

fn folder(variable: &str) -> PathBuf {
    let folder = std::env::var_os(variable).filter(|folder| !folder.is_empty());
    let folder = folder.unwrap_or_else(|| panic!("{variable}: tests/cluster/run.sh sets it"));
    PathBuf::from(folder)
}

/// Where SGLang is installed.
fn installation() -> PathBuf {
    folder("ROLLOUT_TEST_SGLANG")
}

/// The tiny model, with the files of the built-in tokenizer.
pub(super) fn model() -> PathBuf {
    folder("ROLLOUT_TEST_SGLANG_MODEL")
}

/// What the engine needs of the machine: libraries, the installation, and the Python that the installation leads to.
fn machine(installation: &Path) -> BTreeSet<PathBuf> {
    let python = installation.join("venv/bin/python");
    let homes = [
        std::fs::read_link(&python).unwrap(),
        std::fs::canonicalize(&python).unwrap(),
    ];
    let home_of = |python: &PathBuf| python.parent().unwrap().parent().unwrap().to_owned();
    let libraries = ["/usr", "/bin", "/lib", "/lib64"].map(PathBuf::from);
    let mut folders: BTreeSet<_> = libraries.into_iter().filter(|path| path.exists()).collect();
    folders.extend(homes.iter().map(home_of));
    folders.insert(installation.to_owned());
    folders
}

/// A volume of a folder of the machine.
pub(super) fn of_machine(name: &str, path: &Path) -> Value {
    json!({"name": name, "hostPath": {"path": path}})
}

/// A pool with one engine.
pub(super) fn pool(model: &Value) -> Value {
    let installation = installation();
    let folders = machine(&installation);
    let volumes: Vec<_> = folders
        .iter()
        .enumerate()
        .map(|(index, path)| of_machine(&format!("machine-{index}"), path))
        .collect();
    let mounts: Vec<_> = folders
        .iter()
        .enumerate()
        .map(|(index, path)| json!({"name": format!("machine-{index}"), "mountPath": path, "readOnly": true}))
        .collect();
    let variable = |(name, value): (&str, String)| json!({"name": name, "value": value});
    let env = [
        ("SGLANG_USE_CPU_ENGINE", "1".to_owned()),
        ("OMP_NUM_THREADS", "1".to_owned()),
        (
            "PYTHONPATH",
            installation.join("stubs").display().to_string(),
        ),
        (
            "LD_LIBRARY_PATH",
            installation.join("stublibs").display().to_string(),
        ),
    ];
    json!({
        "model": model,
        "engine": {
            "image": "localhost/host:1",
            "contextLength": 4096,
            "toolCallParser": "qwen25",
            "drainTimeoutSeconds": 10,
            "env": env.map(variable),
            "extraArgs": [
                "--device=cpu", "--attention-backend=torch_native", "--dtype=float32", "--disable-cuda-graph", "--disable-overlap-schedule",
                "--max-total-tokens=16384", "--max-running-requests=16", "--mem-fraction-static=0.1", "--sleep-on-idle",
            ],
            "template": {"spec": {
                "containers": [{
                    "name": "engine",
                    "command": [installation.join("venv/bin/python"), "-m", "sglang.launch_server"],
                    "resources": {"requests": {"cpu": "1m", "memory": "2Gi"}},
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            }},
        },
    })
}

/// Waits until the pool's engines take work.
pub(super) async fn is_ready(place: &Place, pool: &str) {
    let pools = objects(&place.client, &place.namespace, meta::POOL_KIND);
    place
        .comes_true(&format!("{pool} is ready"), LIMIT, async || {
            condition(&pools, pool, "Ready").await == "True/AsExpected"
        })
        .await;
}

/// The only engine of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Engine {
    address: String,
    /// Its Pod, and how often its container has started again.
    pub(super) life: (String, i32),
}

impl Engine {
    pub(super) async fn of(place: &Place, pool: &str) -> Self {
        let selector = format!("{}={pool},{}=engine", labels::POOL, labels::COMPONENT);
        let params = ListParams::default().labels(&selector);
        let pods: Api<Pod> = place.all();
        let pods = pods.list(&params).await.unwrap().items;
        let [pod] = pods.as_slice() else {
            panic!("{pool} has {} engines", pods.len());
        };
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let restarts = containers.iter().map(|one| one.restart_count).sum();
        Self {
            address: status.pod_ip.unwrap(),
            life: (pod.uid().unwrap(), restarts),
        }
    }

    /// A file, as its sidecar serves it.
    pub(super) async fn file(&self, name: &str) -> String {
        let url = format!("http://{}:30001/tokenizer/{name}", self.address);
        let request = reqwest::Client::new().get(url).timeout(ANSWER);
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{name}: {status} {text}");
        text
    }

    /// Ids that it generates.
    pub(super) async fn generate(&self, text: &str, tokens: u32) -> Vec<u32> {
        let url = format!("http://{}:30000/generate", self.address);
        let body = json!({"text": text, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}});
        let request = reqwest::Client::new().post(url).json(&body).timeout(ANSWER);
        let answer = request.send().await.unwrap();
        let answer = answer.error_for_status().unwrap();
        let answer: Value = answer.json().await.unwrap();
        serde_json::from_value(answer["output_ids"].clone()).unwrap_or_else(|_| panic!("{answer}"))
    }
}
