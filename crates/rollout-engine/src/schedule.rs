//! When to take the next batch of groups.

use crate::config::Granularity;

/// What the decision looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Groups that the step still needs.
    pub(crate) needed: u64,
    /// Groups taken and not ended.
    pub(crate) pending_groups: u64,
    /// Samples of these that are not generated yet.
    pub(crate) pending_samples: u64,
    /// Samples per group.
    pub(crate) samples_per_prompt: u64,
}

/// Whether another batch of `fetch` groups is due.
pub(crate) fn has_capacity(granularity: Granularity, load: Load) -> bool {
    match granularity {
        Granularity::Group => load.pending_groups < load.needed,
        Granularity::Sample => {
            load.pending_samples + load.samples_per_prompt <= load.needed * load.samples_per_prompt
        }
    }
}
