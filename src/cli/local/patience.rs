//! How long the driver may take to end once it was told to. Pure.

use std::time::Duration;

use rollout_engine::LadderConfig;

/// What a rung may take beyond its deadline, to say that it missed it.
const RUNG_MARGIN: Duration = Duration::from_secs(2);

/// The ledger's last write and the last word.
const LAST_WORD: Duration = Duration::from_secs(10);

/// The deadlines of all rungs of the ladder, one after the other.
pub(super) fn of(ladder: &LadderConfig) -> Duration {
    let LadderConfig {
        fence,
        abort,
        hook,
        drain,
        second_abort,
        collect,
        release,
        prove,
    } = ladder;
    let hook = hook.unwrap_or_default();
    [
        *fence,
        *abort,
        hook,
        *drain,
        *second_abort,
        *collect,
        *release,
        *prove,
    ]
    .into_iter()
    .map(|rung| rung + RUNG_MARGIN)
    .sum::<Duration>()
        + LAST_WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_counts() {
        let seconds = Duration::from_secs;
        let ladder = LadderConfig {
            fence: seconds(1),
            abort: seconds(2),
            hook: Some(seconds(4)),
            drain: seconds(8),
            second_abort: seconds(16),
            collect: seconds(32),
            release: seconds(64),
            prove: seconds(128),
        };
        assert_eq!(of(&ladder), seconds(255 + 8 * 2 + 10));
        let without_agents = LadderConfig {
            hook: None,
            ..ladder
        };
        assert_eq!(of(&without_agents), seconds(251 + 8 * 2 + 10));
    }
}
