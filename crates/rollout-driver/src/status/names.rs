//! Names of the driver's metrics: a rename is visible here, and in a snapshot.
//!
//! What Miles logs has Miles's name, with underscores for slashes and the prefix `rollout_`. A counter gets `_total` when it is shown.

/// Takes of prompt groups that ended, by state.
pub(super) const TAKES: &str = "rollout_takes";
/// Takes that have not ended.
pub(super) const TAKES_OPEN: &str = "rollout_takes_open";
/// Sessions or requests that ended, by outcome.
pub(super) const SAMPLES: &str = "rollout_samples";
/// Sessions or requests under way.
pub(super) const SAMPLES_IN_FLIGHT: &str = "rollout_samples_in_flight";
/// Samples in the output's finished steps.
pub(super) const SAMPLES_WRITTEN: &str = "rollout_samples_written";
/// Sessions that the router has for this job.
pub(super) const SESSIONS: &str = "rollout_sessions";
/// Tokens, by what became of them.
pub(super) const TOKENS: &str = "rollout_tokens";
/// Failures, by reason.
pub(super) const FAILURES: &str = "rollout_failures";
/// How long rewards took; a unit is added.
pub(super) const REWARD: &str = "rollout_reward_duration";
/// How long samples waited for their turn; a unit is added.
pub(super) const QUEUE: &str = "rollout_queue_duration";
/// How long the last teardown took; a unit is added.
pub(super) const TEARDOWN: &str = "rollout_teardown_duration";
/// How long the work in flight took to end in it; a unit is added.
pub(super) const TEARDOWN_DRAIN: &str = "rollout_teardown_drain_duration";
/// Requests that it aborted.
pub(super) const TEARDOWN_ABORTED: &str = "rollout_teardown_aborted_requests";
/// Groups of the last finished step without spread in their rewards, by reward.
pub(super) const ZERO_STD_COUNT: &str = "rollout_zero_std_count";
/// Groups that the filter dropped in the last finished step, by reason.
pub(super) const FILTER_DROP: &str = "rollout_dynamic_filter_drop";

/// Miles's name of a group count by reward, up to the reward.
pub(super) const MILES_ZERO_STD_COUNT: &str = "rollout/zero_std/count_";
/// Miles's name of a filter's count, up to the reason.
pub(super) const MILES_FILTER_DROP: &str = "rollout/dynamic_filter/drop_";

/// Figures of the last finished step: Miles's name and ours.
pub(super) const STEP: [(&str, &str); 19] = [
    ("rollout/step", "rollout_step"),
    ("rollout/response_len/mean", "rollout_response_len_mean"),
    ("rollout/response_len/median", "rollout_response_len_median"),
    ("rollout/response_len/max", "rollout_response_len_max"),
    ("rollout/response_len/min", "rollout_response_len_min"),
    ("rollout/truncated_ratio", "rollout_truncated_ratio"),
    (
        "rollout/prefix_cache_hit_rate",
        "rollout_prefix_cache_hit_rate",
    ),
    (
        "rollout/avg_cached_tokens_per_sample",
        "rollout_avg_cached_tokens_per_sample",
    ),
    ("rollout/raw_reward", "rollout_raw_reward"),
    (
        "rollout/zero_std/all_zero_percentage",
        "rollout_zero_std_all_zero_percentage",
    ),
    (
        "rollout/zero_std/all_one_percentage",
        "rollout_zero_std_all_one_percentage",
    ),
    ("rollout/weight_version/mean", "rollout_weight_version_mean"),
    (
        "rollout/weight_version/median",
        "rollout_weight_version_median",
    ),
    ("rollout/weight_version/max", "rollout_weight_version_max"),
    ("rollout/weight_version/min", "rollout_weight_version_min"),
    (
        "rollout/weight_version/mixed_version_ratio",
        "rollout_weight_version_mixed_version_ratio",
    ),
    ("rollout/spec_accept_rate", "rollout_spec_accept_rate"),
    ("rollout/spec_accept_length", "rollout_spec_accept_length"),
    ("perf/rollout_time", "rollout_perf_rollout_time"),
];
