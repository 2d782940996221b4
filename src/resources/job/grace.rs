//! Grace periods: what has to fit between SIGTERM and the end.

use crate::api::job::RolloutJobSpec;

/// The rungs of the ladder with deadlines of their own, each with what it may take to say that it missed it, and the last word: fence 10, abort 10,
/// second abort 10, collect 120, release 30, prove 10, hook and drain 4, eight times 2, and 10. A test holds it against the driver's own ladder.
const RUNGS: i32 = 10 + 10 + 10 + 120 + 30 + 10 + 4 + 8 * 2 + 10;
/// With agents, what is on its way when hook and drain are over.
const ON_ITS_WAY: i32 = 5;
/// The plug-in host and the router end after the driver.
const SIDECARS: i32 = 20;

/// Seconds that the driver's Pod gets.
pub(super) fn driver(spec: &RolloutJobSpec) -> i32 {
    let drain = spec.teardown.drain_seconds;
    let hook = spec.teardown.abort_hook_seconds;
    let own = if spec.generate.agentic.is_some() {
        hook.max(drain).saturating_add(ON_ITS_WAY)
    } else {
        drain
    };
    own.saturating_add(RUNGS + SIDECARS)
}

/// Seconds that an agent's Pod gets: the launcher ends everything in half of it, the hook included.
pub(super) fn agent(spec: &RolloutJobSpec) -> i32 {
    const REPORT: i32 = 5;
    const LEAST: i32 = 30;
    let hook = spec.teardown.abort_hook_seconds;
    hook.saturating_add(REPORT).saturating_mul(2).max(LEAST)
}
