//! What the reconciler works with.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::core::DeserializeGuard;

use super::drivers::Drivers;
use crate::api::pool::SGLangPool;
use crate::controllers::runtime::apply::Applier;
use crate::controllers::runtime::calls::Calls;
use crate::controllers::runtime::children::Children;
use crate::controllers::runtime::telling::Teller;
use crate::resources::Rendering;
use crate::resources::secrets::OperatorKey;

/// What is known about something, by namespace and name.
pub type OfJob<T> = Box<dyn Fn(&str, &str) -> T + Send + Sync>;

/// What is done with a job, by namespace and name.
pub type Enqueue = dyn Fn(&str, &str) + Send + Sync;

/// What the reconciler works with.
pub struct Context {
    /// The way to the API server.
    pub calls: Calls,
    /// Applies as the job controller.
    pub applier: Applier,
    /// What was made for jobs, Pods apart.
    pub children: Children,
    /// Pods, by namespace and job.
    pub pods: OfJob<Vec<Arc<Pod>>>,
    /// A pool.
    pub pool: OfJob<Option<Arc<DeserializeGuard<SGLangPool>>>>,
    /// Whether the operator looks at a namespace.
    pub looks_at: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Puts a job into the queue.
    pub queue: Arc<Enqueue>,
    /// The drivers that are asked.
    pub drivers: Drivers,
    /// The installation.
    pub rendering: Rendering,
    /// What tokens are derived from.
    pub key: OperatorKey,
    /// Tells events.
    pub teller: Teller,
}
