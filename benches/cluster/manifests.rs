//! The objects of the measurements, made from `examples/quickstart`, as a user would write them.

use serde::Deserialize;
use serde_json::{Value, json};

const JOB: &str = include_str!("../../examples/quickstart/job.yaml");
const POOL: &str = include_str!("../../examples/quickstart/pool.yaml");

/// A job, and what it names but for the pool.
pub(crate) fn job() -> Value {
    of_kind("RolloutJob")
}

/// A pool of simulated engines.
pub(crate) fn pool() -> Value {
    of_kind("SGLangPool")
}

/// What job and pool name: a claim and the data set.
pub(crate) fn beside() -> [Value; 2] {
    [of_kind("PersistentVolumeClaim"), of_kind("ConfigMap")]
}

fn of_kind(kind: &str) -> Value {
    let documents = [JOB, POOL]
        .into_iter()
        .flat_map(serde_yaml::Deserializer::from_str);
    let mut documents = documents.map(|document| Value::deserialize(document).unwrap());
    documents.find(|document| document["kind"] == kind).unwrap()
}

/// An object in its place.
pub(crate) fn named(mut object: Value, namespace: &str, name: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["name"] = json!(name);
    object
}

/// An object in a namespace, with the name that it has.
pub(crate) fn within(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// A job whose driver no node takes.
pub(crate) fn unschedulable(mut job: Value) -> Value {
    job["spec"]["driver"] = json!({"template": {"spec": {"nodeSelector": {"bench": "nowhere"}}}});
    job
}
