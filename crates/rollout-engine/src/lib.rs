//! The batch loop of a rollout as a pure state machine: an event goes in, commands come out.
//!
//! **Purpose.** Decide which prompt groups to take, which samples to start, refill or cancel, when a step has enough groups, and
//! what becomes of every group that was taken. The shell (`rollout-driver`) generates, scores, filters and writes; this crate
//! never does IO, reads no clock and draws no random number: `now` is an argument.
//!
//! ```text
//!              PromptReady        SampleEnded          SampleScored        Filtered
//!  take ---> loading --------> working ----------> (all generated) --> filtering --------> kept | filtered(reason)
//!              |                  |  ^ refill (infrastructure)                                  or, beyond the target,
//!              | PromptRefused    |  |                                                          recycled | filtered(surplus)
//!              v                  v--'
//!            failed            recycled (bounded retries) | failed(reason)
//! ```
//!
//! **Guarantees.** Every *take* of a group ends in exactly one [`TakeEnd`]; the sum of the ends and of the open takes equals the
//! takes ([`Book::check`]). Every run ends: retries, refills, failures and filtered groups are all bounded ([`Limits`]). The
//! teardown ladder climbs through all its rungs whatever fails ([`Ladder`]).
//!
//! **Crashes.** The engine emits [`Command::Write`] before it acts on a decision. Whoever stores these records in order can rebuild
//! a [`Book`] from any prefix of them, and [`Engine::resume`] continues: kept groups stay kept, open ones are recycled.
//!
//! **Caveats.** The engine holds ids and counts, never prompts or tokens.

mod book;
mod budget;
mod command;
mod config;
mod engine;
mod event;
pub mod filter;
mod group;
mod ids;
mod outage;
mod queue;
mod schedule;
mod tally;
mod teardown;

pub use book::{Book, BookError, OpenTake, QueueName, Queued, Record, Requeue, Source};
pub use command::{Blame, Command, Company, JobResult, Reason};
pub use config::{EngineConfig, Granularity, LadderConfig, Limits, Scoring, Surplus};
pub use engine::{Engine, Progress};
pub use event::{Event, SampleEnd, ScoreEnd, SlotStart, StopCause, Verdict};
pub use ids::{GroupIndex, SampleKey, Step, TakeId};
pub use tally::{TakeEnd, Tally};
pub use teardown::{
    HookOutcome, Ladder, LadderStep, Reach, Rung, RungOutcome, RungReport, TeardownSummary,
};
