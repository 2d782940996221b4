//! The dynamic sampling filters that need no plug-in.

use crate::event::Verdict;

/// What a filter sees of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// The scalar reward.
    pub reward: Option<f64>,
    /// Ended from outside before it was complete.
    pub aborted: bool,
}

/// Keeps groups whose rewards differ: sample standard deviation above 1e-8, as in Miles.
///
/// A group with an aborted sample without a reward is dropped as `group_has_aborted`, one with another sample without a reward as
/// `missing_reward`, one with a reward that is not finite as `reward_not_finite`; else the reason is `zero_std_<reward>`.
pub fn nonzero_reward_std(group: &[Scored]) -> Verdict {
    let drop = |reason: String| Verdict::Drop { reason };
    if group.iter().any(|s| s.aborted && s.reward.is_none()) {
        return drop("group_has_aborted".into());
    }
    let rewards: Vec<f64> = group.iter().filter_map(|s| s.reward).collect();
    if rewards.len() != group.len() {
        return drop("missing_reward".into());
    }
    if rewards.iter().any(|r| !r.is_finite()) {
        return drop("reward_not_finite".into());
    }
    if sample_std(&rewards) > 1e-8 {
        return Verdict::Keep;
    }
    drop(format!(
        "zero_std_{:.1}",
        rewards.first().copied().unwrap_or(0.0)
    ))
}

/// Keeps groups without aborted samples.
pub fn no_aborted(group: &[Scored]) -> Verdict {
    if group.iter().any(|s| s.aborted) {
        return Verdict::Drop {
            reason: "group_has_aborted".into(),
        };
    }
    Verdict::Keep
}

/// Standard deviation with N - 1 in the denominator; 0 for fewer than two values.
fn sample_std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a group has far fewer than 2^52 samples"
    )]
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (squares / (n - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(rewards: &[f64]) -> Vec<Scored> {
        let scored = |reward: &f64| Scored {
            reward: Some(*reward),
            aborted: false,
        };
        rewards.iter().map(scored).collect()
    }

    fn dropped(group: &[Scored]) -> String {
        match nonzero_reward_std(group) {
            Verdict::Drop { reason } => reason,
            other => panic!("not dropped: {other:?}"),
        }
    }

    #[test]
    fn rewards_that_differ_are_kept_from_one_in_a_hundred_millions_on() {
        // Of two rewards that are d apart the sample standard deviation is d / sqrt(2), the one of the population d / 2.
        for rewards in [&[0.0, 1.0][..], &[0.0, 0.0, 0.0, 1.0], &[0.0, 1.5e-8]] {
            assert_eq!(nonzero_reward_std(&group(rewards)), Verdict::Keep);
        }
        assert_eq!(dropped(&group(&[0.0, 1.3e-8])), "zero_std_0.0");
    }

    #[test]
    fn rewards_that_are_all_alike_are_dropped_with_what_they_are() {
        assert_eq!(dropped(&group(&[1.0, 1.0])), "zero_std_1.0");
        assert_eq!(dropped(&group(&[-0.25; 8])), "zero_std_-0.2");
        assert_eq!(dropped(&group(&[1.0])), "zero_std_1.0", "one alone");
        assert_eq!(dropped(&[]), "zero_std_0.0");
    }

    #[test]
    fn what_has_no_reward_drops_its_group() {
        let with = |last: Scored| [group(&[0.0, 1.0]), vec![last]].concat();
        let unscored = |aborted| Scored {
            reward: None,
            aborted,
        };
        assert_eq!(dropped(&with(unscored(false))), "missing_reward");
        assert_eq!(dropped(&with(unscored(true))), "group_has_aborted");
        for reward in [f64::NAN, f64::INFINITY] {
            let last = Scored {
                reward: Some(reward),
                aborted: false,
            };
            assert_eq!(dropped(&with(last)), "reward_not_finite");
        }
        let rewarded = Scored {
            reward: Some(0.5),
            aborted: true,
        };
        assert_eq!(nonzero_reward_std(&with(rewarded)), Verdict::Keep);
        assert_eq!(
            no_aborted(&with(rewarded)),
            Verdict::Drop {
                reason: "group_has_aborted".into()
            }
        );
    }
}
