//! The ledger as a value: takes, their ends, the recycle queues, the data set's cursor, the step.
//!
//! A [`Book`] is what remains after a sequence of [`Record`]s. The driver stores the records; after a crash the book of any prefix
//! of them is a valid place to continue from.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::command::JobResult;
use crate::ids::{GroupIndex, Step, TakeId};
use crate::tally::{TakeEnd, Tally};
use crate::teardown::RungReport;

/// The two recycle queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueName {
    /// Served before the data set.
    Front,
    /// Served when the data set's epoch is over: the data set's tail.
    Tail,
}

/// A group that waits to be taken again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// The group.
    pub group: GroupIndex,
    /// Takes that failed so far.
    pub tries: u32,
    /// Whether samples of an earlier take are stored for it.
    pub samples: bool,
    /// The group of the data set before which it is served (tail queue only).
    pub due: GroupIndex,
}

/// Where a recycled group goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeue {
    /// The queue; the group goes to its end.
    pub queue: QueueName,
    /// The entry.
    pub entry: Queued,
}

/// Where a take came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A fresh row: the cursor moves.
    Dataset,
    /// The head of a recycle queue.
    Queue(QueueName),
}

/// One entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A group was taken.
    Taken {
        /// The take.
        take: TakeId,
        /// The group.
        group: GroupIndex,
        /// The step it is for.
        step: Step,
        /// Where it came from.
        source: Source,
    },
    /// A take ended.
    Ended {
        /// The take.
        take: TakeId,
        /// How.
        end: TakeEnd,
        /// Where its group waits, when it is taken again.
        requeue: Option<Requeue>,
    },
    /// The data set's cursor was set: the ledger of an earlier attempt is gone, its output is not.
    Cursor {
        /// The next fresh group.
        next_group: GroupIndex,
    },
    /// A step is finished, and its takes were in the ledger of an earlier attempt, which is gone: only their counts are known.
    Restored {
        /// The step.
        step: Step,
        /// How its takes ended.
        tally: Tally,
    },
    /// A rung of the teardown ladder ended.
    Rung {
        /// The step.
        step: Step,
        /// What happened.
        report: RungReport,
    },
    /// A step has its output.
    StepClosed {
        /// The step.
        step: Step,
    },
    /// The job is decided.
    Finished {
        /// How.
        result: JobResult,
    },
}

/// A take that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTake {
    /// Its group.
    pub group: GroupIndex,
    /// Its step.
    pub step: Step,
    /// Takes of this group that failed before.
    pub tries: u32,
    /// Whether samples of an earlier take were stored for it when it was taken.
    pub samples: bool,
}

/// A record that does not fit the book.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// The end of a take that is not open.
    #[error("take {0} ended, but it is not open")]
    NotOpen(TakeId),
    /// A take id that was used before.
    #[error("take {0} was taken before")]
    TakenBefore(TakeId),
    /// A take from a queue whose head is another group.
    #[error("take {take} took group {group}, which is not at the head of its queue")]
    NotQueued {
        /// The take.
        take: TakeId,
        /// The group.
        group: GroupIndex,
    },
    /// The ends and the open takes of a step do not sum up to its takes.
    #[error("step {step}: {taken} takes, but {ended} ended and {open} are open")]
    Sum {
        /// The step.
        step: Step,
        /// Takes.
        taken: u64,
        /// Ends.
        ended: u64,
        /// Open ones.
        open: u64,
    },
}

/// The state of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Book {
    /// The current step.
    pub step: Step,
    /// The next take.
    pub next_take: TakeId,
    /// The data set's cursor: the next fresh group.
    pub next_group: GroupIndex,
    /// Takes that have not ended.
    pub open: BTreeMap<TakeId, OpenTake>,
    /// Groups to take before the data set.
    pub front: VecDeque<Queued>,
    /// Groups to take when the epoch is over.
    pub tail: VecDeque<Queued>,
    /// Counts per step.
    pub tallies: BTreeMap<Step, Tally>,
    /// Rungs that ended of the ladder for what has been taken so far; the next take begins without any.
    pub rungs: Vec<RungReport>,
    /// How the job ended, once it is decided.
    pub result: Option<JobResult>,
}

impl Book {
    /// Adds a record.
    ///
    /// # Errors
    /// The record contradicts the book; the book is unchanged then.
    pub fn apply(&mut self, record: &Record) -> Result<(), BookError> {
        match record {
            Record::Taken {
                take,
                group,
                step,
                source,
            } => self.taken(*take, *group, *step, *source)?,
            Record::Ended { take, end, requeue } => {
                let open = self.open.remove(take).ok_or(BookError::NotOpen(*take))?;
                self.tallies.entry(open.step).or_default().count(end, 1);
                if let Some(requeue) = requeue {
                    self.queue(requeue.queue).push_back(requeue.entry);
                }
            }
            Record::Cursor { next_group } => self.next_group = *next_group,
            Record::Restored { step, tally } => self.tallies.entry(*step).or_default().add(tally),
            Record::Rung { report, .. } => self.rungs.push(report.clone()),
            Record::StepClosed { step } => {
                self.step = step.next();
                self.rungs.clear();
            }
            Record::Finished { result } => self.result = Some(result.clone()),
        }
        Ok(())
    }

    fn taken(
        &mut self,
        take: TakeId,
        group: GroupIndex,
        step: Step,
        source: Source,
    ) -> Result<(), BookError> {
        if take < self.next_take {
            return Err(BookError::TakenBefore(take));
        }
        let (tries, samples) = match source {
            Source::Dataset => {
                self.next_group = group.next();
                (0, false)
            }
            Source::Queue(name) => {
                let queue = self.queue(name);
                match queue.front() {
                    Some(head) if head.group == group => {
                        let found = (head.tries, head.samples);
                        queue.pop_front();
                        found
                    }
                    _ => return Err(BookError::NotQueued { take, group }),
                }
            }
        };
        self.next_take = take.next();
        // Whoever takes anew after a ladder (an interruption's) will climb one of its own.
        self.rungs.clear();
        self.tallies.entry(step).or_default().taken += 1;
        self.open.insert(
            take,
            OpenTake {
                group,
                step,
                tries,
                samples,
            },
        );
        Ok(())
    }

    fn queue(&mut self, name: QueueName) -> &mut VecDeque<Queued> {
        match name {
            QueueName::Front => &mut self.front,
            QueueName::Tail => &mut self.tail,
        }
    }

    /// The counts of the current step.
    pub fn current(&self) -> Tally {
        self.tallies.get(&self.step).cloned().unwrap_or_default()
    }

    /// Kept groups of the current step.
    pub fn kept(&self) -> u64 {
        self.tallies.get(&self.step).map_or(0, |tally| tally.kept)
    }

    /// The counts of all steps.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for tally in self.tallies.values() {
            total.add(tally);
        }
        total
    }

    /// Checks that each take ended in exactly one state, or is open.
    ///
    /// # Errors
    /// Names the first step whose counts do not sum up.
    pub fn check(&self) -> Result<(), BookError> {
        for (step, tally) in &self.tallies {
            let open = self.open.values().filter(|take| take.step == *step).count() as u64;
            if tally.taken != tally.ended() + open {
                return Err(BookError::Sum {
                    step: *step,
                    taken: tally.taken,
                    ended: tally.ended(),
                    open,
                });
            }
        }
        Ok(())
    }
}
