//! The objects that pools and jobs become, from specs as users write them.

mod agents;
mod command_lines;
mod drivers;
mod engines;
mod every_object;
mod identity;
mod isolation;
mod overlay;
mod routers;
mod snapshots;
mod tokenizers;

use std::collections::BTreeMap;
use std::path::Path;

use rollout_operator::api::job::RolloutJobSpec;
use rollout_operator::api::manifest;
use rollout_operator::api::pool::SGLangPoolSpec;
use rollout_operator::api::{meta, validate};
use rollout_operator::resources::job::{self, AgentPod, JobInput, JobObjects, PoolBinding};
use rollout_operator::resources::pool::{self, PoolInput, PoolObjects};
use rollout_operator::resources::secrets::{JobSecrets, OperatorKey};
use rollout_operator::resources::{Object, Owner, Refusal, Rendering};
use serde_json::{Value, json};

fn rendering() -> Rendering {
    Rendering {
        image: "registry.example/rollout-operator:1.2.3".to_owned(),
        image_pull_secrets: vec!["pull".to_owned()],
        version: "1.2.3".to_owned(),
        operator_namespace: Some("rollout-system".to_owned()),
        cluster_domain: "cluster.local".to_owned(),
        dns_addresses: vec!["169.254.20.10/32".to_owned()],
    }
}

fn key() -> OperatorKey {
    OperatorKey::new("a key of the tests")
}

/// A custom resource of a file.
struct Resource {
    owner: Owner,
    spec: Value,
}

impl Resource {
    fn of(object: &Value) -> Option<Self> {
        let kind = match object["kind"].as_str()? {
            meta::POOL_KIND => meta::POOL_KIND,
            meta::JOB_KIND => meta::JOB_KIND,
            _ => return None,
        };
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or("generated-x7k2p");
        let labels: BTreeMap<String, String> =
            serde_json::from_value(metadata["labels"].clone()).unwrap_or_default();
        Some(Self {
            owner: Owner {
                kind,
                namespace: metadata["namespace"]
                    .as_str()
                    .unwrap_or("default")
                    .to_owned(),
                name: name.to_owned(),
                uid: format!("00000000-0000-4000-8000-{:0>12}", name.len()),
                labels,
            },
            spec: validate::with_defaults(object)["spec"].clone(),
        })
    }

    fn named(kind: &'static str, name: &str, spec: &Value) -> Self {
        let object = json!({
            "apiVersion": meta::API_VERSION, "kind": kind,
            "metadata": {"name": name, "namespace": "rl"}, "spec": spec,
        });
        let wrong: Vec<_> = validate::validate(&object)
            .into_iter()
            .filter(validate::Violation::is_error)
            .collect();
        assert_eq!(wrong, [], "a spec of the tests is wrong");
        Self::of(&object).unwrap()
    }

    fn pool_spec(&self) -> SGLangPoolSpec {
        serde_json::from_value(self.spec.clone()).unwrap()
    }

    fn job_spec(&self) -> RolloutJobSpec {
        serde_json::from_value(self.spec.clone()).unwrap()
    }

    fn pool_objects(&self) -> Result<PoolObjects, Refusal> {
        self.pool_objects_for(&rendering(), None)
    }

    fn pool_objects_for(
        &self,
        rendering: &Rendering,
        live_engines: Option<&Value>,
    ) -> Result<PoolObjects, Refusal> {
        pool::build(PoolInput {
            owner: &self.owner,
            spec: &self.pool_spec(),
            rendering,
            key: &key(),
            live_engines,
        })
    }
}

/// A job with its pool.
struct Case {
    job: Resource,
    pool_name: String,
    pool_namespace: String,
    pool: SGLangPoolSpec,
    /// The job's own pool, as the object that the controller makes.
    own_pool: Option<Object>,
}

impl Case {
    fn new(job: Resource, pools: &[Resource]) -> Self {
        let spec = job.job_spec();
        let own_pool = job::own_pool(&job.owner, &spec, &rendering());
        let reference = spec.pool_ref.as_ref();
        let name = reference.map_or(&job.owner.name, |reference| &reference.name);
        let namespace = reference.and_then(|reference| reference.namespace.as_ref());
        let known = pools.iter().find(|pool| pool.owner.name == *name);
        let pool = match (&own_pool, known) {
            (Some(own), _) => serde_json::from_value(own.value["spec"].clone()).unwrap(),
            (None, Some(known)) => known.pool_spec(),
            (None, None) => serde_json::from_value(json!({"engine": {"simulator": {}}})).unwrap(),
        };
        Self {
            pool_name: name.clone(),
            pool_namespace: namespace.unwrap_or(&job.owner.namespace).clone(),
            pool,
            own_pool,
            job,
        }
    }

    fn with<T>(&self, attempt: u32, run: impl FnOnce(JobInput<'_>) -> T) -> T {
        run(JobInput {
            owner: &self.job.owner,
            spec: &self.job.job_spec(),
            pool: PoolBinding {
                name: &self.pool_name,
                namespace: &self.pool_namespace,
                spec: &self.pool,
            },
            attempt,
            secrets: &JobSecrets::of(&key(), &self.job.owner.uid, attempt),
            rendering: &rendering(),
        })
    }

    /// With volumes where `file://` URLs want them.
    fn mounted(mut self) -> Self {
        let spec = &mut self.job.spec;
        let has_files = ["dataset", "output"]
            .iter()
            .any(|field| spec[*field]["url"].is_string());
        if has_files && spec["driver"]["template"].is_null() {
            spec["driver"]["template"] = json!({"spec": {
                "volumes": [{"name": "files", "persistentVolumeClaim": {"claimName": "files"}}],
                "containers": [{"name": "driver", "volumeMounts": [{"name": "files", "mountPath": "/data/samples"}]}],
            }});
        }
        self
    }

    fn objects(&self) -> JobObjects {
        self.with(1, job::build).unwrap()
    }

    fn refusal(&self) -> Refusal {
        self.with(1, job::build).unwrap_err()
    }

    fn agent(&self, slot: u32, generation: u32) -> Object {
        let pod = AgentPod {
            slot,
            generation,
            image: None,
        };
        self.with(1, |input| job::agent_pod(input, pod)).unwrap().0
    }

    fn has_agents(&self) -> bool {
        self.job.job_spec().generate.agentic.is_some()
    }

    /// Everything of the job: what is applied, the driver, an agent, its own pool.
    fn all(&self) -> Vec<Object> {
        let (mut objects, driver) = self.objects().split();
        objects.push(driver);
        if self.has_agents() {
            objects.push(self.agent(3, 7));
        }
        objects.extend(self.own_pool.clone());
        objects
    }
}

/// The custom resources of a file, below the folder of the package.
fn resources(path: &str) -> Vec<Resource> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let sources = manifest::read(&[path]);
    assert_eq!(sources.findings, [], "faults in the specs of the tests");
    let documents = sources.documents.into_iter();
    documents
        .filter_map(|document| Resource::of(&document.value))
        .collect()
}

const FILES: [&str; 8] = [
    "tests/it/resources/specs/pools.yaml",
    "tests/it/resources/specs/jobs.yaml",
    "tests/fixtures/manifests/good/agent.yaml",
    "tests/fixtures/manifests/good/engines.yaml",
    "tests/fixtures/manifests/good/quickstart.yaml",
    "examples/agent/job.yaml",
    "examples/math/job.yaml",
    "examples/sglang-cpu/math.yaml",
];

/// Every pool and job of every file that can run on a cluster.
fn everything() -> (Vec<Resource>, Vec<Case>) {
    let all = FILES.iter().flat_map(|file| resources(file));
    let (pools, jobs): (Vec<_>, Vec<_>) =
        all.partition(|resource| resource.owner.kind == meta::POOL_KIND);
    let cases = jobs
        .into_iter()
        .map(|job| Case::new(job, &pools).mounted())
        .collect();
    (pools, cases)
}

fn pool_of(file: &str, name: &str) -> Resource {
    let mut found = resources(file);
    found.retain(|resource| resource.owner.kind == meta::POOL_KIND && resource.owner.name == name);
    found.pop().unwrap()
}

fn spec_pool(name: &str) -> Resource {
    pool_of(FILES[0], name)
}

fn spec_job(name: &str) -> Case {
    let pools = resources(FILES[0]);
    let mut jobs = resources(FILES[1]);
    jobs.retain(|resource| resource.owner.name == name);
    Case::new(jobs.pop().unwrap(), &pools)
}

fn a_pool(spec: &Value) -> Resource {
    Resource::named(meta::POOL_KIND, "pool", spec)
}

/// The container of a Pod, or of a template, wherever it is.
fn container<'a>(pod_spec: &'a Value, name: &str) -> &'a Value {
    ["initContainers", "containers"]
        .iter()
        .filter_map(|list| pod_spec[*list].as_array())
        .flatten()
        .find(|container| container["name"] == name)
        .unwrap_or(&Value::Null)
}

fn arguments(container: &Value) -> Vec<&str> {
    let list = container["args"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

fn env<'a>(container: &'a Value, name: &str) -> &'a Value {
    container["env"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|variable| variable["name"] == name)
        .unwrap_or(&Value::Null)
}

fn mount<'a>(container: &'a Value, path: &str) -> &'a Value {
    container["volumeMounts"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|mount| mount["mountPath"] == path)
        .unwrap_or(&Value::Null)
}

fn volume<'a>(pod_spec: &'a Value, name: &str) -> &'a Value {
    pod_spec["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|volume| volume["name"] == name)
        .unwrap_or(&Value::Null)
}
