//! What the shell tells the engine.

use crate::ids::{SampleKey, TakeId};
use crate::teardown::{Rung, RungReport};

/// What one slot of a group starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotStart {
    /// Nothing.
    Generate,
    /// The partial output of an earlier take.
    Resume,
    /// It was finished in an earlier take.
    Finished {
        /// Whether it has its reward.
        scored: bool,
    },
}

/// How one execution of a sample ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SampleEnd {
    /// A result: completed, truncated, or a failure of the policy. Scored, unless there is nothing to score.
    Finished {
        /// `false`: an aborted or empty sample, which no reward model sees.
        scorable: bool,
        /// Tokens that the engine generated for it.
        tokens: u64,
    },
    /// Ended from outside before it was complete. During teardown that is what was asked for; else it counts as an
    /// infrastructure failure.
    Aborted {
        /// Tokens that the engine generated for it.
        tokens: u64,
    },
    /// The machinery failed, not the policy: run it again.
    Infra {
        /// Stable name of the cause; failures of one cause at one time are one incident.
        cause: String,
    },
    /// No engine took the request: none could be reached, or all were full. Nothing was generated, and the sample is not at fault: it is
    /// run again and costs nothing. What bounds it is how often in a row nothing at all is served.
    Unserved {
        /// Stable name of the cause.
        cause: String,
    },
    /// It shared a process with others, and the process died: one of them did it, nobody knows which. It is run again and costs nothing;
    /// after some of these it runs alone, where its end is its own.
    SharedDeath {
        /// Stable name of the cause.
        cause: String,
    },
    /// Its agent ran out of memory for the first time: as `Infra`. The next time it is the agent's own doing
    /// ([`crate::Blame`]), and a result.
    OutOfMemory {
        /// Stable name of the cause.
        cause: String,
    },
    /// What should run cannot be started, and hardly could anywhere (an agent that cannot be imported): as `Infra`, but a few of these
    /// with no finished sample in between end the job.
    Setup {
        /// Stable name of the cause.
        cause: String,
    },
    /// As `Setup`, and known to be so everywhere (its code is broken) while nothing of its kind has ever been started: three of these end
    /// the job.
    Unusable {
        /// Stable name of the cause.
        cause: String,
        /// What is wrong with it, for people.
        problem: String,
    },
    /// It can never succeed (the engine refuses the request): the group fails without a retry.
    Rejected {
        /// Stable name of the reason.
        reason: String,
    },
}

/// What came of asking for a reward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScoreEnd {
    /// There is one.
    Scored,
    /// It failed for good; another answer may be scored.
    Failed,
    /// The reward function itself cannot be called, and hardly ever will: the group fails without a retry, and a few of these with no
    /// reward in between end the job.
    Unusable {
        /// What is wrong with it, for people.
        problem: String,
    },
}

/// What the filter said about a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Train on it.
    Keep,
    /// Drop it.
    Drop {
        /// Why; counted by this text.
        reason: String,
    },
    /// There is nothing to judge: no sample of it has a token. The group failed, and its prompt is taken again within limits.
    Fail {
        /// Why; counted by this text.
        reason: String,
    },
}

/// Why a job stops before its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// Signal, or the one who started it went away.
    Interrupted,
    /// `activeDeadlineSeconds` is over.
    Deadline,
    /// `preRunningDeadlineSeconds` is over, and nothing has been generated.
    NotRunning,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Begin, or continue after [`crate::Engine::resume`].
    Start,
    /// Time passed: [`crate::Engine::next_wakeup`] is due.
    Tick,
    /// The prompt of a take is loaded.
    PromptReady {
        /// The take.
        take: TakeId,
        /// One entry per slot.
        slots: Vec<SlotStart>,
    },
    /// The row of a take is bad.
    PromptRefused {
        /// The take.
        take: TakeId,
    },
    /// The row of a take is good, and the job leaves it out (too long, for example).
    PromptSkipped {
        /// The take.
        take: TakeId,
        /// Why; the take ends as filtered with this reason.
        reason: String,
    },
    /// One execution ended.
    SampleEnded {
        /// Which.
        key: SampleKey,
        /// How.
        end: SampleEnd,
    },
    /// A sample has its reward, or its reward failed for good.
    SampleScored {
        /// The take.
        take: TakeId,
        /// The slot.
        slot: u32,
        /// What came of it.
        end: ScoreEnd,
    },
    /// The answer to [`crate::Command::ScoreGroup`].
    GroupScored {
        /// The take.
        take: TakeId,
        /// What came of it.
        end: ScoreEnd,
    },
    /// The answer to [`crate::Command::Filter`].
    Filtered {
        /// The take.
        take: TakeId,
        /// What it said.
        verdict: Verdict,
    },
    /// Stop early.
    Stop(StopCause),
    /// A rung of the ladder ended.
    RungEnded {
        /// Which.
        rung: Rung,
        /// How.
        report: RungReport,
    },
    /// The answer to [`crate::Command::WriteStep`].
    StepWritten,
}
