//! What a step's samples sum up to, and the metrics that Miles would log for them.
//!
//! Pure. Samples are added one by one, group after group; memory is a few numbers per sample. Names and definitions are those of Miles's
//! `rollout/` metrics: response lengths are trained tokens, the hit rate is weighted by tokens, a group without spread counts under its
//! reward with one decimal, a sample's weight version is its oldest. Not computed: `repetition_frac` (it needs zlib's exact ratios),
//! and what is not a property of samples (`perf/`), which the caller adds.

use std::collections::{BTreeMap, BTreeSet};

use rollout_session::{Sample, SampleStatus};
use serde_json::{Map, Value};

use super::manifest::TokenCounts;

/// Sums over the samples of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    reward_key: String,
    pub(super) rows: u64,
    pub(super) status: BTreeMap<String, u64>,
    pub(super) tokens: TokenCounts,
    pub(super) weight_versions: BTreeMap<String, u64>,
    lengths: Vec<u64>,
    oldest_versions: Vec<u64>,
    mixed_versions: u64,
    cached_tokens: i64,
    prompt_tokens: i64,
    spec: Speculation,
    rewards: Rewards,
    groups: BTreeMap<i64, GroupReward>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Speculation {
    used: bool,
    accept_rate: f64,
    accept_length: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rewards {
    count: u64,
    sum: f64,
}

/// The reward of a group's first sample, and whether a later one differs.
#[derive(Debug, Clone, Copy)]
struct GroupReward {
    first: Option<f64>,
    spread: bool,
}

impl Sums {
    pub(super) fn new(reward_key: &str) -> Self {
        Self {
            reward_key: reward_key.to_owned(),
            ..Self::default()
        }
    }

    /// Groups seen so far.
    pub(super) fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    /// Adds one sample. Rows of damaged files come here too, so sums stop at their limits instead of overflowing.
    pub(super) fn add(&mut self, sample: &Sample) {
        self.rows += 1;
        *self
            .status
            .entry(status_name(sample.status).to_owned())
            .or_default() += 1;
        let trained = sample.trained_tokens() as u64;
        self.tokens.total = self.tokens.total.saturating_add(sample.tokens.len() as u64);
        self.tokens.response = self
            .tokens
            .response
            .saturating_add(sample.response_length as u64);
        self.tokens.trained = self.tokens.trained.saturating_add(trained);
        self.lengths.push(trained);
        self.cached_tokens = self
            .cached_tokens
            .saturating_add(sample.prefix_cache_info.cached_tokens);
        self.prompt_tokens = self
            .prompt_tokens
            .saturating_add(sample.prefix_cache_info.total_prompt_tokens);
        self.add_versions(&sample.weight_versions);
        self.add_speculation(sample);
        self.add_reward(sample);
    }

    fn add_versions(&mut self, versions: &[String]) {
        for version in versions {
            *self.weight_versions.entry(version.clone()).or_default() += 1;
        }
        self.oldest_versions.extend(
            versions
                .iter()
                .filter_map(|version| number_of(version))
                .min(),
        );
        self.mixed_versions += u64::from(versions.iter().collect::<BTreeSet<_>>().len() > 1);
    }

    fn add_speculation(&mut self, sample: &Sample) {
        let info = sample.spec_info;
        self.spec.used |= info.spec_draft_token_num > 0 || info.spec_verify_ct > 0;
        self.spec.accept_rate += ratio(info.spec_accept_token_num, info.spec_draft_token_num);
        self.spec.accept_length += ratio(info.completion_token_num, info.spec_verify_ct);
    }

    fn add_reward(&mut self, sample: &Sample) {
        let reward = sample.scalar_reward(&self.reward_key);
        if let Some(reward) = reward {
            self.rewards.count += 1;
            self.rewards.sum += reward;
        }
        let group = sample.group_index.unwrap_or(-1);
        let seen = self.groups.entry(group).or_insert(GroupReward {
            first: reward,
            spread: false,
        });
        seen.spread |= seen.first != reward;
    }

    /// The metrics, under their full names. None without samples.
    pub(super) fn metrics(&self, step: u32) -> Map<String, Value> {
        let mut metrics = Map::new();
        if self.rows == 0 {
            return metrics;
        }
        let mut put = |name: &str, value: Value| metrics.insert(format!("rollout/{name}"), value);
        put("step", step.into());
        for (name, value) in statistics(&self.lengths) {
            put(&format!("response_len/{name}"), value);
        }
        put(
            "truncated_ratio",
            self.share(self.status.get("truncated").copied().unwrap_or(0))
                .into(),
        );
        put(
            "prefix_cache_hit_rate",
            ratio(self.cached_tokens, self.prompt_tokens).into(),
        );
        put(
            "avg_cached_tokens_per_sample",
            (float(self.cached_tokens) / self.row_count()).into(),
        );
        if self.rewards.count > 0 {
            put(
                "raw_reward",
                (self.rewards.sum / whole(self.rewards.count)).into(),
            );
            for (name, value) in self.zero_std() {
                put(&name, value);
            }
        }
        if !self.oldest_versions.is_empty() {
            for (name, value) in statistics(&self.oldest_versions) {
                put(&format!("weight_version/{name}"), value);
            }
            put(
                "weight_version/mixed_version_ratio",
                self.share(self.mixed_versions).into(),
            );
        }
        if self.spec.used {
            put(
                "spec_accept_rate",
                (self.spec.accept_rate / self.row_count()).into(),
            );
            put(
                "spec_accept_length",
                (self.spec.accept_length / self.row_count()).into(),
            );
        }
        metrics
    }

    /// Groups whose samples all have the same reward, by that reward; shares are of all groups.
    fn zero_std(&self) -> Vec<(String, Value)> {
        let mut counts = BTreeMap::<String, u64>::new();
        for group in self.groups.values().filter(|group| !group.spread) {
            if let Some(reward) = group.first {
                *counts.entry(one_decimal(reward)).or_default() += 1;
            }
        }
        let share =
            |reward: &str| whole(counts.get(reward).copied().unwrap_or(0)) / whole(self.groups());
        let shares = [
            ("all_zero_percentage", share("0.0")),
            ("all_one_percentage", share("1.0")),
        ];
        let counts = counts
            .iter()
            .map(|(reward, count)| (format!("zero_std/count_{reward}"), Value::from(*count)));
        counts
            .chain(shares.map(|(name, share)| (format!("zero_std/{name}"), share.into())))
            .collect()
    }

    fn row_count(&self) -> f64 {
        whole(self.rows)
    }

    fn share(&self, count: u64) -> f64 {
        whole(count) / self.row_count()
    }
}

/// The name of a status in JSON.
pub(super) fn status_name(status: SampleStatus) -> &'static str {
    match status {
        SampleStatus::Pending => "pending",
        SampleStatus::Completed => "completed",
        SampleStatus::Truncated => "truncated",
        SampleStatus::Aborted => "aborted",
        SampleStatus::Failed => "failed",
    }
}

/// A weight version that is a number; others, such as `default`, have no order.
fn number_of(version: &str) -> Option<u64> {
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    if is_number {
        version.parse().ok()
    } else {
        None
    }
}

fn statistics(values: &[u64]) -> [(&'static str, Value); 4] {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let count = sorted.len();
    let at = |place: usize| whole(sorted.get(place).copied().unwrap_or(0));
    let median = f64::midpoint(at(count.saturating_sub(1) / 2), at(count / 2));
    let sum = sorted.iter().copied().fold(0, u64::saturating_add);
    let mean = whole(sum) / whole(count as u64);
    let edge = |value: Option<&u64>| Value::from(value.copied().unwrap_or(0));
    [
        ("mean", mean.into()),
        ("median", median.into()),
        ("max", edge(sorted.last())),
        ("min", edge(sorted.first())),
    ]
}

/// 0 without a denominator.
fn ratio(numerator: i64, denominator: i64) -> f64 {
    if denominator > 0 {
        float(numerator) / float(denominator)
    } else {
        0.0
    }
}

/// As Python rounds and prints a reward.
fn one_decimal(reward: f64) -> String {
    let text = format!("{reward:.1}");
    if text == "-0.0" {
        "0.0".to_owned()
    } else {
        text
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tokens and samples are far below 2^53"
)]
fn whole(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tokens and samples are far below 2^53"
)]
fn float(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollout_session::{PrefixCacheInfo, SpecInfo};
    use serde_json::json;

    fn sample(group: i64, reward: Value) -> Sample {
        Sample {
            group_index: Some(group),
            tokens: vec![1, 2, 3, 4, 5],
            response_length: 3,
            loss_mask: Some(vec![1, 0, 1]),
            reward,
            status: SampleStatus::Completed,
            ..Sample::default()
        }
    }

    fn metrics(key: &str, samples: &[Sample]) -> Map<String, Value> {
        let mut sums = Sums::new(key);
        for sample in samples {
            sums.add(sample);
        }
        sums.metrics(7)
    }

    #[test]
    fn metrics_have_the_names_of_miles() {
        let with = |group, reward: f64, versions: &[&str], cached| Sample {
            weight_versions: versions
                .iter()
                .map(|version| (*version).to_owned())
                .collect(),
            prefix_cache_info: PrefixCacheInfo {
                cached_tokens: cached,
                total_prompt_tokens: 10,
            },
            ..sample(group, json!(reward))
        };
        let long = Sample {
            status: SampleStatus::Truncated,
            tokens: vec![1; 12],
            response_length: 10,
            loss_mask: None,
            spec_info: SpecInfo {
                spec_accept_token_num: 3,
                spec_draft_token_num: 4,
                spec_verify_ct: 2,
                completion_token_num: 5,
            },
            ..with(2, 0.0, &["default"], 0)
        };
        let samples = [
            with(0, 1.0, &["3", "4"], 5),
            with(0, 1.0, &["4"], 5),
            with(1, 0.0, &["5"], 0),
            with(1, 0.5, &[], 10),
            long,
        ];
        insta::assert_snapshot!(serde_json::to_string_pretty(&metrics("", &samples)).expect("JSON"), @r#"
        {
          "rollout/step": 7,
          "rollout/response_len/mean": 3.6,
          "rollout/response_len/median": 2.0,
          "rollout/response_len/max": 10,
          "rollout/response_len/min": 2,
          "rollout/truncated_ratio": 0.2,
          "rollout/prefix_cache_hit_rate": 0.4,
          "rollout/avg_cached_tokens_per_sample": 4.0,
          "rollout/raw_reward": 0.5,
          "rollout/zero_std/count_0.0": 1,
          "rollout/zero_std/count_1.0": 1,
          "rollout/zero_std/all_zero_percentage": 0.3333333333333333,
          "rollout/zero_std/all_one_percentage": 0.3333333333333333,
          "rollout/weight_version/mean": 4.0,
          "rollout/weight_version/median": 4.0,
          "rollout/weight_version/max": 5,
          "rollout/weight_version/min": 3,
          "rollout/weight_version/mixed_version_ratio": 0.2,
          "rollout/spec_accept_rate": 0.15,
          "rollout/spec_accept_length": 0.5
        }
        "#);
    }

    #[test]
    fn the_key_names_the_reward_of_an_object() {
        let samples = [
            sample(0, json!({"score": -1.0, "acc": 0})),
            sample(0, json!({"score": -1.0, "acc": 1})),
        ];
        let metrics = metrics("score", &samples);
        assert_eq!(metrics["rollout/raw_reward"], json!(-1.0));
        assert_eq!(metrics["rollout/zero_std/count_-1.0"], json!(1));
    }

    #[test]
    fn without_rewards_or_samples_there_is_nothing_to_say_about_them() {
        let unrewarded = metrics("", &[sample(0, Value::Null)]);
        assert!(
            !unrewarded
                .keys()
                .any(|name| name.contains("reward") || name.contains("zero_std"))
        );
        assert!(metrics("", &[]).is_empty());
    }

    #[test]
    fn sums_count_tokens_and_groups() {
        let mut sums = Sums::new("");
        for group in [0, 1] {
            sums.add(&sample(group, json!(1)));
        }
        assert_eq!(
            sums.tokens,
            TokenCounts {
                total: 10,
                response: 6,
                trained: 4
            }
        );
        assert_eq!((sums.rows, sums.groups()), (2, 2));
    }
}
