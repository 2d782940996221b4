//! Sessions that no agent takes: from when on that is said, and in which words. Pure.

use std::time::Duration;

use super::control::Demand;

/// How long sessions may wait with no agent at work until somebody is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the slots of agent pods are doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// How long the oldest pod has been there, and its slot.
    pub(super) oldest: Option<(Duration, u32)>,
    /// Pods in a row that ended soon, of the slot with the most.
    pub(super) short_lived: u32,
}

/// Whether sessions wait and nobody works on any or asks for one.
pub(super) fn is_stuck(demand: &Demand) -> bool {
    demand.waiting > 0 && demand.assigned == 0 && demand.idle_claims == 0
}

/// What a person is told when that has been so for `stuck_for`. `loads` is what an agent loads at first; `log` the file of the slot.
pub(super) fn notice(
    demand: &Demand,
    stuck_for: Duration,
    slots: Slots,
    loads: Option<&str>,
    log: &str,
) -> Option<String> {
    if stuck_for < PATIENCE {
        return None;
    }
    let why = match (slots, loads) {
        (
            Slots {
                short_lived: 1.., ..
            },
            _,
        ) => {
            format!("agent pods ended {} times in a row", slots.short_lived)
        }
        (
            Slots {
                oldest: Some((age, _)),
                ..
            },
            Some(loads),
        ) => {
            format!("{loads} is being loaded for {}", rounded(age))
        }
        (
            Slots {
                oldest: Some((age, _)),
                ..
            },
            None,
        ) => {
            format!("an agent pod is starting for {}", rounded(age))
        }
        (Slots { oldest: None, .. }, _) => "no agent pod runs".to_owned(),
    };
    let sessions = match demand.waiting {
        1 => "1 session waits".to_owned(),
        more => format!("{more} sessions wait"),
    };
    Some(format!("{sessions} for agents ({why}; log: {log})"))
}

/// Seconds up to a minute, then minutes: where there is no bar, a new text is a new line.
fn rounded(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{} s", seconds / 5 * 5),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: Demand = Demand {
        waiting: 8,
        assigned: 0,
        idle_claims: 0,
    };

    fn said(stuck_for: u64, slots: Slots, loads: Option<&str>) -> Option<String> {
        notice(
            &WAITING,
            Duration::from_secs(stuck_for),
            slots,
            loads,
            "logs/agent-0.log",
        )
    }

    fn aged(seconds: u64) -> Slots {
        Slots {
            oldest: Some((Duration::from_secs(seconds), 0)),
            short_lived: 0,
        }
    }

    #[test]
    fn sessions_wait_in_vain_only_when_nobody_works_or_asks() {
        assert!(is_stuck(&WAITING));
        for demand in [
            Demand {
                waiting: 0,
                ..WAITING
            },
            Demand {
                assigned: 1,
                ..WAITING
            },
            Demand {
                idle_claims: 1,
                ..WAITING
            },
        ] {
            assert!(!is_stuck(&demand), "{demand:?}");
        }
    }

    #[test]
    fn it_is_said_after_ten_seconds_with_the_reason_and_the_log() {
        assert_eq!(said(9, aged(9), Some("agent.py")), None);
        let text = |slots, loads| said(12, slots, loads).unwrap();
        assert_eq!(
            text(aged(12), Some("agent.py")),
            "8 sessions wait for agents (agent.py is being loaded for 10 s; log: logs/agent-0.log)"
        );
        assert_eq!(
            text(aged(150), None),
            "8 sessions wait for agents (an agent pod is starting for 2 min; log: logs/agent-0.log)"
        );
        let failing = Slots {
            short_lived: 4,
            ..aged(1)
        };
        assert_eq!(
            text(failing, Some("agent.py")),
            "8 sessions wait for agents (agent pods ended 4 times in a row; log: logs/agent-0.log)"
        );
        assert_eq!(
            text(Slots::default(), None),
            "8 sessions wait for agents (no agent pod runs; log: logs/agent-0.log)"
        );
    }
}
