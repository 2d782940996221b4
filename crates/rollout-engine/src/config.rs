//! What the batch loop is told at its start.

use std::time::Duration;

/// When a new batch of groups is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Granularity {
    /// While fewer groups are pending than the step still needs.
    #[default]
    Group,
    /// While fewer samples are in flight than the step still needs.
    Sample,
}

/// What becomes of a finished group that passes the filter after the target was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surplus {
    /// Its prompt is taken again.
    #[default]
    Recycle,
    /// It ends as `filtered(surplus)`; the shell writes it next to the kept ones.
    Write,
}

/// How rewards are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scoring {
    /// Never: the samples bring what they have.
    None,
    /// Each sample as soon as it is generated.
    #[default]
    Sample,
    /// The whole group at once.
    Group,
}

/// Bounds that make every run end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How often one sample is run again after infrastructure failures.
    pub sample_refills: u32,
    /// Shared processes that may die with a sample in them before it runs in one of its own.
    pub shared_deaths: u32,
    /// How often one group is taken in all when it keeps failing.
    pub group_tries: u32,
    /// Infrastructure incidents before the job ends. Samples that were in flight when an incident was first seen belong to it.
    pub infra_incidents: u32,
    /// Bad rows of the data set before the job ends.
    pub bad_rows: u32,
    /// Group failures in a row, or samples in a row that could not be started, or times in a row that nothing that was started found an
    /// engine, before the job ends. What was under way together and may fail of one cause counts once.
    pub consecutive_group_failures: u32,
    /// Samples in a row whose agent cannot be started for its own fault, before the job ends.
    pub unusable_agents: u32,
    /// Samples or groups in a row whose reward function could not even be called, before the job ends.
    pub unusable_rewards: u32,
    /// Filtered groups in a row before the data set counts as exhausted.
    pub consecutive_filtered: u64,
    /// Pause before a first refill; doubles with every further one.
    pub refill_backoff: Duration,
    /// The longest such pause, and the longest one before anything is started again while no engine serves.
    pub refill_backoff_limit: Duration,
}

impl Limits {
    /// The pause before a refill, after so many doublings.
    pub(crate) fn backoff(&self, doublings: u32) -> Duration {
        let doubled = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.refill_backoff
            .saturating_mul(doubled)
            .min(self.refill_backoff_limit)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sample_refills: 5,
            shared_deaths: 2,
            group_tries: 3,
            infra_incidents: 100,
            bad_rows: 100,
            consecutive_group_failures: 16,
            unusable_agents: 3,
            unusable_rewards: 3,
            consecutive_filtered: 4096,
            refill_backoff: Duration::from_millis(250),
            refill_backoff_limit: Duration::from_secs(30),
        }
    }
}

/// Deadlines of the teardown ladder, one per rung.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LadderConfig {
    /// Close admission at the router.
    pub fence: Duration,
    /// Abort what is in flight at the engines.
    pub abort: Duration,
    /// The agent's `abort` hook; `None` for a job without agents, which never calls one.
    pub hook: Option<Duration>,
    /// What finishes by itself.
    pub drain: Duration,
    /// The second abort, for stragglers.
    pub second_abort: Duration,
    /// Fetch what cancelled samples have.
    pub collect: Duration,
    /// Close sessions, so that their pods can go.
    pub release: Duration,
    /// Ask the router that nothing is left.
    pub prove: Duration,
}

impl Default for LadderConfig {
    fn default() -> Self {
        Self {
            fence: Duration::from_secs(10),
            abort: Duration::from_secs(10),
            hook: None,
            drain: Duration::from_mins(1),
            second_abort: Duration::from_secs(10),
            collect: Duration::from_mins(1),
            release: Duration::from_secs(30),
            prove: Duration::from_secs(10),
        }
    }
}

/// Everything that the batch loop is told at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Rollouts of the job, at least 1.
    pub steps: u32,
    /// Kept groups per step, at least 1.
    pub target: u32,
    /// Samples per group, at least 1.
    pub samples_per_prompt: u32,
    /// Groups that are taken at once. 1: exactly what the step still needs; `target` or more: oversampling, as in Miles.
    pub fetch: u32,
    /// When they are taken.
    pub granularity: Granularity,
    /// Samples in flight at most, at least 1.
    pub max_in_flight: u32,
    /// Rows of the data set: one epoch. At least 1.
    pub rows: u64,
    /// Keep what aborted samples have, and resume them in the next step.
    pub partial: bool,
    /// What becomes of surplus groups.
    pub surplus: Surplus,
    /// How rewards are asked for.
    pub scoring: Scoring,
    /// Bounds.
    pub limits: Limits,
    /// Deadlines of the teardown ladder.
    pub ladder: LadderConfig,
}

impl EngineConfig {
    /// A job of one step with the defaults of everything else.
    pub fn new(target: u32, samples_per_prompt: u32, rows: u64) -> Self {
        Self {
            steps: 1,
            target,
            samples_per_prompt,
            fetch: 1,
            granularity: Granularity::Group,
            max_in_flight: u32::MAX,
            rows,
            partial: false,
            surplus: Surplus::Recycle,
            scoring: Scoring::Sample,
            limits: Limits::default(),
            ladder: LadderConfig::default(),
        }
    }
}
