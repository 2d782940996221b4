//! Names that other programs rely on: group, version, labels, annotations, finalizers, field managers.
//!
//! A rename here is a breaking change; a snapshot test makes it visible.

/// API group of both kinds.
pub const GROUP: &str = "rollout-operator.dev";
/// The one served version.
pub const VERSION: &str = "v1alpha1";
/// `group/version`, as manifests write it.
pub const API_VERSION: &str = "rollout-operator.dev/v1alpha1";
/// Kind of a pool of engines.
pub const POOL_KIND: &str = "SGLangPool";
/// Kind of a rollout.
pub const JOB_KIND: &str = "RolloutJob";
/// Category of both kinds: `kubectl get rollouts`.
pub const CATEGORY: &str = "rollouts";
/// Value of `spec.managedBy` that means this controller; any other value means hands off.
pub const CONTROLLER_NAME: &str = "rollout-operator.dev/controller";
/// Longest name of a pool or a job. Leaves 18 characters of a DNS label for `-agent-<slot>-<generation>`.
pub const MAX_NAME_LENGTH: usize = 45;

/// Labels that the operator sets on what it creates.
pub mod labels {
    /// Name of the pool that an object belongs to.
    pub const POOL: &str = "rollout-operator.dev/pool";
    /// Name of the job that an object belongs to.
    pub const JOB: &str = "rollout-operator.dev/job";
    /// UID of the job: what the orphan sweep selects by.
    pub const JOB_UID: &str = "rollout-operator.dev/job-uid";
    /// Attempt of the job that a driver Pod runs.
    pub const ATTEMPT: &str = "rollout-operator.dev/attempt";
    /// Slot of an agent Pod.
    pub const SLOT: &str = "rollout-operator.dev/slot";
    /// Generation of an agent Pod in its slot.
    pub const GENERATION: &str = "rollout-operator.dev/generation";
    /// What an object is for: `engine`, `router`, `driver` or `agent`.
    pub const COMPONENT: &str = "rollout-operator.dev/component";
    /// `app.kubernetes.io/name`.
    pub const APP_NAME: &str = "app.kubernetes.io/name";
    /// `app.kubernetes.io/instance`.
    pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
    /// `app.kubernetes.io/component`.
    pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
    /// `app.kubernetes.io/part-of`.
    pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
    /// `app.kubernetes.io/managed-by`: on everything that the operator creates, so that every watch can select by it.
    pub const APP_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// `app.kubernetes.io/version`.
    pub const APP_VERSION: &str = "app.kubernetes.io/version";
    /// Value of `app.kubernetes.io/managed-by` and `part-of`.
    pub const OPERATOR: &str = "rollout-operator";
    /// Prefix of the labels that only the operator may set; removed from users' templates.
    pub const RESERVED_PREFIX: &str = "rollout-operator.dev/";
    /// Kueue's queue of a workload, passed through.
    pub const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
    /// Kueue's priority class of a workload, passed through.
    pub const KUEUE_PRIORITY: &str = "kueue.x-k8s.io/priority-class";
}

/// Annotations that the operator sets.
pub mod annotations {
    /// Hash of the user's spec that an object was rendered from.
    pub const REVISION: &str = "rollout-operator.dev/revision";
    /// The Pod template that a Deployment of engines was rendered with, so that another version of the operator leaves its Pods alone.
    pub const TEMPLATE: &str = "rollout-operator.dev/template";
    /// Hash of the secrets and settings that were applied before this object, which the operator writes and never reads.
    pub const SETTINGS: &str = "rollout-operator.dev/settings";
    /// Keeps the cluster autoscaler from evicting a busy Pod.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// Keeps Argo CD from showing a Pod that does not restart as progressing for ever.
    pub const ARGO_IGNORE_RESTART_POLICY: &str = "argocd.argoproj.io/ignore-restart-policy";
}

/// Finalizers.
pub mod finalizers {
    /// On a job, from its first Pod to `TeardownComplete`.
    pub const TEARDOWN: &str = "rollout-operator.dev/teardown";
    /// On a driver Pod, until its termination message is in the job's status.
    pub const LAST_WORD: &str = "rollout-operator.dev/last-word";
}

/// Field managers of server-side apply: one per controller and sub-resource.
pub mod field_managers {
    /// What the pool controller creates.
    pub const POOL: &str = "rollout-operator/pool";
    /// The status of pools.
    pub const POOL_STATUS: &str = "rollout-operator/pool-status";
    /// What the job controller creates.
    pub const JOB: &str = "rollout-operator/job";
    /// The status of jobs.
    pub const JOB_STATUS: &str = "rollout-operator/job-status";
}
