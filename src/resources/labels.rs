//! What objects are found by.

use serde_json::{Map, Value};

use super::owner::Owner;
use super::rendering::Rendering;
use crate::api::meta::{self, labels as name};

/// What an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// An engine.
    Engine,
    /// A pool's router.
    Router,
    /// Who asks a pool's external engines with their key.
    Survey,
    /// A job's driver, with its router.
    Driver,
    /// An agent.
    Agent,
}

impl Component {
    /// The label's value.
    pub fn value(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Router => "router",
            Self::Survey => "survey",
            Self::Driver => "driver",
            Self::Agent => "agent",
        }
    }
}

type Labels = Map<String, Value>;

/// Labels of an object, which change with the operator's version.
pub(super) fn of_object(
    owner: &Owner,
    component: Option<Component>,
    rendering: &Rendering,
) -> Labels {
    let mut labels = of_pod(owner, component);
    set(&mut labels, name::APP_VERSION, &rendering.version);
    labels
}

/// Labels of a Pod: without the operator's version, so that an upgrade of it replaces no Pod.
pub(super) fn of_pod(owner: &Owner, component: Option<Component>) -> Labels {
    let is_pool = owner.kind == meta::POOL_KIND;
    let mut labels = Labels::new();
    let application = if is_pool {
        "sglang-pool"
    } else {
        "rollout-job"
    };
    set(&mut labels, name::APP_NAME, application);
    set(&mut labels, name::APP_INSTANCE, &owner.name);
    set(&mut labels, name::APP_PART_OF, name::OPERATOR);
    set(&mut labels, name::APP_MANAGED_BY, name::OPERATOR);
    if let Some(component) = component {
        set(&mut labels, name::APP_COMPONENT, component.value());
        set(&mut labels, name::COMPONENT, component.value());
    }
    if is_pool {
        set(&mut labels, name::POOL, &owner.name);
    } else {
        set(&mut labels, name::JOB, &owner.name);
        set(&mut labels, name::JOB_UID, &owner.uid);
    }
    labels
}

/// What selects a pool's Pods of one kind. Immutable once a Deployment has it.
pub fn of_pool(pool: &str, component: Component) -> Labels {
    let mut labels = Labels::new();
    set(&mut labels, name::POOL, pool);
    set(&mut labels, name::COMPONENT, component.value());
    labels
}

/// What selects a job's Pods of one kind, of any attempt.
pub fn of_job(job: &str, component: Component) -> Labels {
    let mut labels = Labels::new();
    set(&mut labels, name::JOB, job);
    set(&mut labels, name::COMPONENT, component.value());
    labels
}

/// Kueue's labels of the owner, for the workloads that Kueue looks at.
pub(super) fn queue(owner: &Owner, labels: &mut Labels) {
    for label in [name::KUEUE_QUEUE, name::KUEUE_PRIORITY] {
        if let Some(value) = owner.labels.get(label) {
            set(labels, label, value);
        }
    }
}

pub(super) fn set(labels: &mut Labels, name: &str, value: &str) {
    labels.insert(name.to_owned(), Value::String(value.to_owned()));
}
