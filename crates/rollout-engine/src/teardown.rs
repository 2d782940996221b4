//! The teardown ladder as a state machine: one path for target, cancel, suspend, delete and deadline.
//!
//! Each rung has its own deadline, and each ends in exactly one [`RungReport`]; a rung that fails or runs out of time never skips
//! the ones below it. The ladder is idempotent: after a crash it begins again from the first rung, except that a hook whose outcome
//! is known is not called a second time. What one rung has waited for in vain no later one waits for again ([`Reach`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::LadderConfig;

/// Time that the shell gets beyond a rung's deadline to report by itself.
const MARGIN: Duration = Duration::from_secs(2);

/// Time that a rung gets for what an earlier one has found silent: enough to ask, not to wait.
const AGAIN: Duration = Duration::from_millis(1200);

/// Time for what is on its way to us already, when nobody is left who could send more.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// The rungs, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rung {
    /// Close admission at the router.
    Fence,
    /// Abort what is in flight at the engines.
    Abort,
    /// Call the agent's `abort` hook.
    Hook,
    /// Wait for what ends by itself.
    Drain,
    /// Abort stragglers; what still runs is cancelled when this rung begins.
    SecondAbort,
    /// Wait for what cancelled samples have.
    Collect,
    /// Close sessions.
    Release,
    /// Ask the router that nothing is left.
    Prove,
}

const RUNGS: [Rung; 8] = [
    Rung::Fence,
    Rung::Abort,
    Rung::Hook,
    Rung::Drain,
    Rung::SecondAbort,
    Rung::Collect,
    Rung::Release,
    Rung::Prove,
];

/// What came of the agent's hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HookOutcome {
    /// There is none, or the job has no agents.
    #[default]
    NoHook,
    /// It ran in every process that had sessions.
    HookSucceeded,
    /// It raised, or could not be called.
    HookFailed,
    /// It did not end in time.
    HookTimedOut,
}

/// How a rung ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RungOutcome {
    /// All done.
    #[default]
    Done,
    /// Not needed.
    Skipped,
    /// Not done; the ladder went on.
    Failed(String),
    /// Not done in its time; the ladder went on.
    TimedOut,
}

/// Who still answers, as far as a rung has found out.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Reach {
    /// Router and engines.
    #[default]
    All,
    /// Engines were told to end requests, and for the whole time of a rung did not.
    EnginesSilent,
    /// The router cannot be reached, so that nobody can be told anything.
    RouterGone,
}

/// One rung's last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RungReport {
    /// Which rung.
    pub rung: Rung,
    /// How it ended.
    #[serde(default)]
    pub outcome: RungOutcome,
    /// Time from the rung's beginning, filled in by the ladder.
    #[serde(default)]
    pub millis: u64,
    /// Sessions that were fenced.
    #[serde(default)]
    pub fenced_sessions: u64,
    /// Requests that were aborted at their engines.
    #[serde(default)]
    pub aborted_requests: u64,
    /// Requests that are still at an engine.
    #[serde(default)]
    pub left: u64,
    /// Requests whose end is not proven.
    #[serde(default)]
    pub unproven: u64,
    /// Samples that did not end by themselves.
    #[serde(default)]
    pub stragglers: u64,
    /// What came of the hook.
    #[serde(default)]
    pub hook: Option<HookOutcome>,
    /// Who still answered.
    #[serde(default)]
    pub reach: Reach,
}

impl RungReport {
    /// A report without counts.
    pub fn new(rung: Rung, outcome: RungOutcome) -> Self {
        Self {
            rung,
            outcome,
            millis: 0,
            fenced_sessions: 0,
            aborted_requests: 0,
            left: 0,
            unproven: 0,
            stragglers: 0,
            hook: None,
            reach: Reach::All,
        }
    }

    /// Requests that are not known to have ended.
    fn open_requests(&self) -> u64 {
        self.left + self.unproven
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LadderStep {
    /// A rung ended.
    Report(RungReport),
    /// Begin a rung.
    Climb {
        /// Which.
        rung: Rung,
        /// Its deadline.
        within: Duration,
    },
    /// No rung is left.
    Finished,
}

/// The numbers of a whole ladder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TeardownSummary {
    /// Sessions that were fenced.
    pub fenced_sessions: u64,
    /// Requests that were aborted at their engines.
    pub aborted_requests: u64,
    /// What came of the hook, once the ladder is past it.
    pub hook: Option<HookOutcome>,
    /// How long the work in flight took to end: the agents' hook and the drain.
    pub drain_millis: u64,
    /// Time from the first rung's beginning to the last one's end.
    pub millis: u64,
    /// Samples that did not end by themselves.
    pub stragglers: u64,
    /// Requests whose end is not proven, or that are still there.
    pub unproven: u64,
    /// Rungs that failed or ran out of time: `Abort: <error>`.
    pub troubles: Vec<String>,
}

impl TeardownSummary {
    /// Sums up reports.
    pub fn of(reports: &[RungReport]) -> Self {
        let mut sum = Self::default();
        let mut open = 0;
        let mut given_up = 0;
        for report in reports {
            sum.fenced_sessions = sum.fenced_sessions.max(report.fenced_sessions);
            sum.aborted_requests += report.aborted_requests;
            sum.millis += report.millis;
            sum.stragglers = sum.stragglers.max(report.stragglers);
            sum.hook = report.hook.or(sum.hook);
            match report.rung {
                // The agents' hook and their drain are one.
                Rung::Hook | Rung::Drain => sum.drain_millis += report.millis,
                Rung::Fence | Rung::Abort => open = report.open_requests(),
                // Their connections are closed now, so that the router forgets them: not because they have ended.
                Rung::SecondAbort if report.outcome != RungOutcome::Skipped => {
                    given_up = open.max(report.open_requests());
                }
                Rung::Prove => sum.unproven = given_up.max(report.open_requests()),
                Rung::SecondAbort | Rung::Collect | Rung::Release => {}
            }
            match &report.outcome {
                RungOutcome::Failed(error) => {
                    sum.troubles.push(format!("{:?}: {error}", report.rung));
                }
                RungOutcome::TimedOut => sum.troubles.push(format!("{:?}: timed out", report.rung)),
                RungOutcome::Done | RungOutcome::Skipped => {}
            }
        }
        sum
    }
}

/// A ladder being climbed.
#[derive(Debug)]
pub struct Ladder {
    config: LadderConfig,
    /// Index into the rungs; their number when all are done.
    at: usize,
    began: Option<Duration>,
    answer: Option<RungReport>,
    known_hook: Option<HookOutcome>,
    reach: Reach,
}

impl Ladder {
    /// A ladder at its foot. `earlier` are the reports of the same ladder before a crash.
    pub fn new(config: LadderConfig, earlier: &[RungReport]) -> Self {
        Self {
            config,
            at: 0,
            began: None,
            answer: None,
            known_hook: earlier
                .iter()
                .filter(|report| report.outcome != RungOutcome::TimedOut)
                .find_map(|report| report.hook),
            reach: Reach::All,
        }
    }

    /// Who still answers.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The rung that is being climbed.
    pub fn rung(&self) -> Option<Rung> {
        RUNGS.get(self.at).copied()
    }

    /// The shell's report of a rung; one of another rung than the current is too late and ignored.
    pub fn answer(&mut self, report: RungReport) {
        if self.rung() != Some(report.rung) || self.began.is_none() {
            return;
        }
        self.reach = match report.rung {
            Rung::Fence | Rung::Abort | Rung::SecondAbort => report.reach,
            // These ask no engine.
            _ => self.reach.max(report.reach),
        };
        self.answer = Some(report);
    }

    /// When [`Ladder::advance`] has to be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let rung = self.rung()?;
        Some(self.began? + self.patience(rung))
    }

    fn patience(&self, rung: Rung) -> Duration {
        match rung {
            Rung::Drain | Rung::Collect => self.within(rung),
            _ => self.within(rung) + MARGIN,
        }
    }

    fn within(&self, rung: Rung) -> Duration {
        let full = self.full(rung);
        match (self.reach, rung) {
            (Reach::EnginesSilent, Rung::Abort | Rung::SecondAbort | Rung::Prove) => {
                full.min(AGAIN)
            }
            // Agents may still end by themselves, requests may not.
            (Reach::EnginesSilent, Rung::Drain) if self.config.hook.is_none() => {
                full.min(ON_ITS_WAY)
            }
            (Reach::All | Reach::EnginesSilent, _) => full,
            (Reach::RouterGone, Rung::Drain) => full.min(ON_ITS_WAY),
            (Reach::RouterGone, _) => full.min(AGAIN),
        }
    }

    fn full(&self, rung: Rung) -> Duration {
        match rung {
            Rung::Fence => self.config.fence,
            Rung::Abort => self.config.abort,
            Rung::Hook => self.config.hook.unwrap_or_default(),
            Rung::Drain => self.config.drain,
            Rung::SecondAbort => self.config.second_abort,
            Rung::Collect => self.config.collect,
            Rung::Release => self.config.release,
            Rung::Prove => self.config.prove,
        }
    }

    /// Moves as far as it goes without waiting. `in_flight` counts executions that have not ended.
    pub fn advance(&mut self, in_flight: u64, now: Duration) -> Vec<LadderStep> {
        let mut steps = Vec::new();
        loop {
            let Some(rung) = self.rung() else {
                steps.push(LadderStep::Finished);
                return steps;
            };
            let Some(began) = self.began else {
                if let Some(report) = self.skipped(rung, in_flight) {
                    steps.push(LadderStep::Report(report));
                    self.at += 1;
                    continue;
                }
                self.began = Some(now);
                steps.push(LadderStep::Climb {
                    rung,
                    within: self.within(rung),
                });
                continue;
            };
            let Some(mut report) = self.ended(rung, began, in_flight, now) else {
                return steps;
            };
            report.millis =
                u64::try_from(now.saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
            steps.push(LadderStep::Report(report));
            self.began = None;
            self.answer = None;
            self.at += 1;
        }
    }

    fn skipped(&self, rung: Rung, in_flight: u64) -> Option<RungReport> {
        let hook = match rung {
            Rung::Hook if self.config.hook.is_none() => Some(HookOutcome::NoHook),
            Rung::Hook if self.known_hook.is_some() => self.known_hook,
            Rung::SecondAbort if in_flight == 0 => None,
            _ => return None,
        };
        let mut report = RungReport::new(rung, RungOutcome::Skipped);
        report.hook = hook;
        Some(report)
    }

    fn ended(
        &mut self,
        rung: Rung,
        began: Duration,
        in_flight: u64,
        now: Duration,
    ) -> Option<RungReport> {
        if matches!(rung, Rung::Drain | Rung::Collect) && in_flight == 0 {
            return Some(RungReport::new(rung, RungOutcome::Done));
        }
        if let Some(report) = self.answer.take() {
            return Some(report);
        }
        if now < began + self.patience(rung) {
            return None;
        }
        let mut report = RungReport::new(rung, RungOutcome::TimedOut);
        match rung {
            Rung::Hook => report.hook = Some(HookOutcome::HookTimedOut),
            Rung::Drain | Rung::Collect => report.stragglers = in_flight,
            _ => {}
        }
        Some(report)
    }
}
