//! The pool of a job's own, from its `spec.pool`.

use serde_json::json;

use crate::api::job::RolloutJobSpec;
use crate::api::pool::{Oracle, OracleDataset, SGLangPoolSpec};
use crate::resources::{Kind, Object, Owner, Rendering, labels};

/// A `SGLangPool` with the job's name; none: the job uses one by reference. It follows the job's `suspend`.
pub fn own_pool(owner: &Owner, spec: &RolloutJobSpec, rendering: &Rendering) -> Option<Object> {
    let mut pool = spec.pool.clone()?;
    pool.suspend = spec.suspend;
    if let Some(oracle) = oracle_of(&mut pool)
        && oracle.dataset.is_none()
    {
        oracle.dataset = known(spec);
    }
    let mut labels = labels::of_object(owner, None, rendering);
    labels::queue(owner, &mut labels);
    let body = json!({"spec": pool});
    Some(Object::new(
        Kind::SGLangPool,
        owner,
        owner.name.clone(),
        labels,
        body,
    ))
}

fn oracle_of(pool: &mut SGLangPoolSpec) -> Option<&mut Oracle> {
    let simulator = pool.engine.as_mut()?.simulator.as_mut()?;
    simulator.replies.as_mut()?.oracle.as_mut()
}

/// The job's own data set, where it is a `ConfigMap` with labels: an oracle without prompts of its own knows those.
fn known(spec: &RolloutJobSpec) -> Option<OracleDataset> {
    let dataset = &spec.dataset;
    Some(OracleDataset {
        config_map: dataset.config_map.clone()?,
        prompt_key: Some(dataset.prompt_key().to_owned()),
        label_key: Some(dataset.label_key.clone()?),
    })
}
