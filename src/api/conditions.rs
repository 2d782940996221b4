//! Condition types and reasons: the contract with `kubectl wait`, `GitOps` tools and people.
//!
//! A reason is stable, `CamelCase`, and free of names. A rename is a breaking change; a snapshot test makes it visible.

/// Types of conditions.
pub mod types {
    /// Both kinds: the one that `GitOps` tools read. Of a job only when it ended with its samples.
    pub const READY: &str = "Ready";
    /// Both: work toward this generation is going on. Never True together with `Stalled`.
    pub const RECONCILING: &str = "Reconciling";
    /// Both: a person must act; the reason says how.
    pub const STALLED: &str = "Stalled";
    /// Both: the last pod is gone because of `suspend`.
    pub const SUSPENDED: &str = "Suspended";
    /// Pool: at least one engine takes work.
    pub const AVAILABLE: &str = "Available";
    /// Pool: every wanted engine takes work.
    pub const ENGINES_READY: &str = "EnginesReady";
    /// Pool: the pool's router answers.
    pub const ROUTER_READY: &str = "RouterReady";
    /// Pool: every engine has the same, wanted weights.
    pub const WEIGHTS_CONSISTENT: &str = "WeightsConsistent";
    /// Job: its pool can take its work.
    pub const POOL_READY: &str = "PoolReady";
    /// Job: agent pods can start.
    pub const AGENTS_READY: &str = "AgentsReady";
    /// Job: the driver generates samples.
    pub const SAMPLING: &str = "Sampling";
    /// Job: the last step has its groups.
    pub const TARGET_REACHED: &str = "TargetReached";
    /// Job: the ladder ended, and nothing of the job is left.
    pub const TEARDOWN_COMPLETE: &str = "TeardownComplete";
    /// Job: ended with its samples. Latches.
    pub const COMPLETE: &str = "Complete";
    /// Job: ended without. Latches.
    pub const FAILED: &str = "Failed";

    /// Types of a pool's conditions.
    pub const POOL: &[&str] = &[
        READY,
        RECONCILING,
        STALLED,
        SUSPENDED,
        AVAILABLE,
        ENGINES_READY,
        ROUTER_READY,
        WEIGHTS_CONSISTENT,
    ];
    /// Types of a job's conditions.
    pub const JOB: &[&str] = &[
        READY,
        RECONCILING,
        STALLED,
        SUSPENDED,
        POOL_READY,
        AGENTS_READY,
        SAMPLING,
        TARGET_REACHED,
        TEARDOWN_COMPLETE,
        COMPLETE,
        FAILED,
    ];
}

/// Reasons of conditions.
pub mod reasons {
    /// `Complete`: every step has its groups.
    pub const TARGET_REACHED: &str = "TargetReached";
    /// `Complete` or `Failed`: the data set ended before the target.
    pub const DATASET_EXHAUSTED: &str = "DatasetExhausted";
    /// `Failed`: `activeDeadlineSeconds` passed.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// `Failed`: `preRunningDeadlineSeconds` passed without a sample.
    pub const PRE_RUNNING_DEADLINE_EXCEEDED: &str = "PreRunningDeadlineExceeded";
    /// `Failed`: more failed attempts than `backoffLimit`.
    pub const BACKOFF_LIMIT_EXCEEDED: &str = "BackoffLimitExceeded";
    /// `Failed`: more failures than `rollout.errorBudget`.
    pub const ERROR_BUDGET_EXCEEDED: &str = "ErrorBudgetExceeded";
    /// `Failed`: the pool was deleted.
    pub const POOL_LOST: &str = "PoolLost";
    /// `Failed`: the driver found that the spec, or the code that it names, can never work.
    pub const VALIDATION_FAILED: &str = "ValidationFailed";
    /// `Failed`: the data set is not there, or cannot be used.
    pub const DATASET_UNUSABLE: &str = "DatasetUnusable";
    /// `Failed`: the output directory is another job's, or cannot be used.
    pub const OUTPUT_UNUSABLE: &str = "OutputUnusable";
    /// `Failed`: the ledger is another job's, another version's, or damaged.
    pub const LEDGER_UNUSABLE: &str = "LedgerUnusable";
    /// `Failed`: the tokenizer cannot do what the job asks for.
    pub const TOKENIZER_UNUSABLE: &str = "TokenizerUnusable";
    /// `Failed`: somebody cancelled the run.
    pub const CANCELLED: &str = "Cancelled";

    /// `TeardownComplete`: the agent's abort hook ran.
    pub const HOOK_SUCCEEDED: &str = "HookSucceeded";
    /// `TeardownComplete`: the hook raised, or answered with an error.
    pub const HOOK_FAILED: &str = "HookFailed";
    /// `TeardownComplete`: the hook did not end in time.
    pub const HOOK_TIMED_OUT: &str = "HookTimedOut";
    /// `TeardownComplete`: there is no hook.
    pub const NO_HOOK: &str = "NoHook";
    /// `TeardownComplete`: a deadline passed, what was left was killed.
    pub const ESCALATED: &str = "Escalated";

    /// `Stalled`: the spec breaks a rule that the API server cannot check.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// `Stalled`: a field that is in the API and not built yet.
    pub const NOT_SUPPORTED: &str = "NotSupported";
    /// `Stalled`: an object that the spec names does not exist, or lacks the key.
    pub const REFERENCE_NOT_FOUND: &str = "ReferenceNotFound";
    /// `Stalled`: the pool does not allow the job's namespace.
    pub const POOL_NOT_ALLOWED: &str = "PoolNotAllowed";
    /// `Stalled`: an image cannot be pulled.
    pub const IMAGE_PULL_FAILED: &str = "ImagePullFailed";
    /// `Stalled`: a quota refuses pods.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// `Stalled`: no node takes the pods.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// `Stalled`: the API server refuses an object of ours.
    pub const APPLY_REFUSED: &str = "ApplyRefused";
    /// `Stalled`: external engines lack what the router needs.
    pub const ENGINE_UNSUITABLE: &str = "EngineUnsuitable";
    /// `Stalled`: the engines do not get their model, or the checkpoint that they have to load.
    pub const MODEL_UNAVAILABLE: &str = "ModelUnavailable";

    /// `Reconciling`: the spec is new.
    pub const PROGRESSING: &str = "Progressing";
    /// All goes as it should.
    pub const AS_EXPECTED: &str = "AsExpected";
    /// Something is still starting.
    pub const STARTING: &str = "Starting";
    /// `spec.suspend` is set.
    pub const SUSPENDED: &str = "Suspended";
    /// `spec.suspend` was removed.
    pub const RESUMED: &str = "Resumed";
    /// An unused pool is scaled to zero.
    pub const IDLE: &str = "Idle";

    /// Every reason.
    pub const ALL: &[&str] = &[
        TARGET_REACHED,
        DATASET_EXHAUSTED,
        DEADLINE_EXCEEDED,
        PRE_RUNNING_DEADLINE_EXCEEDED,
        BACKOFF_LIMIT_EXCEEDED,
        ERROR_BUDGET_EXCEEDED,
        POOL_LOST,
        VALIDATION_FAILED,
        DATASET_UNUSABLE,
        OUTPUT_UNUSABLE,
        LEDGER_UNUSABLE,
        TOKENIZER_UNUSABLE,
        CANCELLED,
        HOOK_SUCCEEDED,
        HOOK_FAILED,
        HOOK_TIMED_OUT,
        NO_HOOK,
        ESCALATED,
        INVALID_SPEC,
        NOT_SUPPORTED,
        REFERENCE_NOT_FOUND,
        POOL_NOT_ALLOWED,
        IMAGE_PULL_FAILED,
        QUOTA_EXCEEDED,
        UNSCHEDULABLE,
        APPLY_REFUSED,
        ENGINE_UNSUITABLE,
        MODEL_UNAVAILABLE,
        PROGRESSING,
        AS_EXPECTED,
        STARTING,
        SUSPENDED,
        RESUMED,
        IDLE,
    ];
}
