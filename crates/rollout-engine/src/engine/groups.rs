//! Takes: from the queues and the data set, and how they end.

use std::time::Duration;

use super::{Engine, Mode};
use crate::book::{QueueName, Queued, Record, Requeue, Source};
use crate::budget::Spent;
use crate::command::{Blame, Command, Reason};
use crate::config::{Granularity, Scoring, Surplus};
use crate::event::{ScoreEnd, SlotStart, Verdict};
use crate::group::{Group, Phase, Slot, SlotState, slot_mut};
use crate::ids::{GroupIndex, SampleKey, TakeId};
use crate::schedule::{Load, has_capacity};
use crate::tally::TakeEnd;

impl Engine {
    pub(super) fn take_groups(&mut self) {
        while has_capacity(self.config.granularity, self.load()) {
            for _ in 0..self.config.fetch.max(1) {
                self.take_one();
            }
        }
    }

    fn load(&self) -> Load {
        let n = self.config.samples_per_prompt;
        Load {
            needed: u64::from(self.config.target).saturating_sub(self.book.kept()),
            pending_groups: self.groups.len() as u64,
            pending_samples: match self.config.granularity {
                Granularity::Group => 0,
                Granularity::Sample => self
                    .groups
                    .values()
                    .map(|group| u64::from(group.pending_samples(n)))
                    .sum(),
            },
            samples_per_prompt: u64::from(n),
        }
    }

    fn take_one(&mut self) {
        let next = self.book.next_group;
        let (group, tries, source) = if let Some(head) = self.book.front.front() {
            (head.group, head.tries, Source::Queue(QueueName::Front))
        } else if let Some(head) = self.book.tail.front().filter(|head| head.due <= next) {
            (head.group, head.tries, Source::Queue(QueueName::Tail))
        } else {
            (next, 0, Source::Dataset)
        };
        let take = self.book.next_take;
        self.write(Record::Taken {
            take,
            group,
            step: self.book.step,
            source,
        });
        self.groups.insert(take, Group::new(group, tries));
        self.out.push(Command::Load {
            take,
            group,
            source,
        });
    }

    pub(super) fn prompt_ready(&mut self, take: TakeId, slots: &[SlotStart]) {
        let Some(group) = self.groups.get_mut(&take) else {
            return;
        };
        if group.phase != Phase::Loading {
            return;
        }
        self.budget.row_used();
        group.phase = Phase::Working;
        let never_scored = self.config.scoring == Scoring::None;
        for slot in 0..self.config.samples_per_prompt {
            let start = slots
                .get(slot as usize)
                .copied()
                .unwrap_or(SlotStart::Generate);
            let state = match start {
                SlotStart::Generate | SlotStart::Resume => SlotState::Queued,
                SlotStart::Finished { scored } if scored || never_scored => SlotState::Done,
                SlotStart::Finished { .. } => SlotState::Generated,
            };
            group.slots.push(Slot {
                state,
                attempt: 0,
                refills: 0,
                shared_deaths: 0,
                out_of_memory: Blame::Nobody,
                started: Duration::ZERO,
                execution: 0,
                has_samples: start != SlotStart::Generate,
            });
            match state {
                SlotState::Queued => self.queue.push(SampleKey {
                    take,
                    slot,
                    attempt: 0,
                }),
                SlotState::Generated if self.config.scoring == Scoring::Sample => {
                    self.out.push(Command::Score { take, slot });
                }
                _ => {}
            }
        }
        self.group_moved(take);
    }

    pub(super) fn prompt_refused(&mut self, take: TakeId) {
        if self.groups.contains_key(&take) {
            self.budget.bad_row();
            self.end(take, TakeEnd::Failed("bad_row".into()), None, false);
        }
    }

    pub(super) fn prompt_skipped(&mut self, take: TakeId, reason: String) {
        if self.groups.contains_key(&take) {
            self.budget.group_filtered();
            self.budget.row_skipped();
            self.end(take, TakeEnd::Filtered(reason), None, false);
        }
    }

    /// Looks whether a group has come to its next phase.
    pub(super) fn group_moved(&mut self, take: TakeId) {
        let closing = !matches!(self.mode, Mode::Sampling);
        let Some(group) = self.groups.get_mut(&take) else {
            return;
        };
        if group.phase != Phase::Working {
            return;
        }
        if closing {
            if !group.running() {
                self.recycle(take, "unneeded");
            }
            return;
        }
        if group.all(|state| state == SlotState::Done) {
            group.phase = Phase::Filtering;
            self.out.push(Command::Filter { take });
        } else if self.config.scoring == Scoring::Group
            && group.all(|state| matches!(state, SlotState::Generated | SlotState::Done))
        {
            group.phase = Phase::Scoring;
            self.out.push(Command::ScoreGroup { take });
        }
    }

    pub(super) fn sample_scored(&mut self, take: TakeId, slot: u32, end: ScoreEnd) {
        let Some(state) = slot_mut(&mut self.groups, take, slot) else {
            return;
        };
        if state.state != SlotState::Generated {
            return;
        }
        if end == ScoreEnd::Scored {
            state.state = SlotState::Done;
        }
        self.score_ended(take, end);
    }

    pub(super) fn group_scored(&mut self, take: TakeId, end: ScoreEnd) {
        let Some(group) = self.groups.get_mut(&take) else {
            return;
        };
        if group.phase != Phase::Scoring {
            return;
        }
        if end == ScoreEnd::Scored {
            group.phase = Phase::Working;
            for slot in &mut group.slots {
                slot.state = SlotState::Done;
            }
        }
        self.score_ended(take, end);
    }

    fn score_ended(&mut self, take: TakeId, end: ScoreEnd) {
        match end {
            ScoreEnd::Scored => {
                self.budget.scored();
                self.group_moved(take);
            }
            ScoreEnd::Failed => self.fail_group(take, "reward_failed", true),
            ScoreEnd::Unusable { problem } => {
                self.budget.reward_unusable(problem);
                self.fail_group(take, "reward_unusable", false);
            }
        }
    }

    pub(super) fn filtered(&mut self, take: TakeId, verdict: Verdict) {
        if self
            .groups
            .get(&take)
            .is_none_or(|group| group.phase != Phase::Filtering)
        {
            return;
        }
        match verdict {
            Verdict::Drop { reason } => {
                self.budget.group_filtered();
                self.end(take, TakeEnd::Filtered(reason), None, false);
            }
            Verdict::Fail { reason } => self.fail_group(take, &reason, true),
            Verdict::Keep if self.book.kept() < u64::from(self.config.target) => {
                self.budget.group_passed();
                self.end(take, TakeEnd::Kept, None, false);
            }
            Verdict::Keep if self.config.surplus == Surplus::Write => {
                self.end(take, TakeEnd::Filtered("surplus".into()), None, false);
            }
            Verdict::Keep => self.recycle(take, "surplus"),
        }
        // The decision to close comes before the next event of the same wake-up is looked at: what comes after it is surplus.
    }

    /// A try of a group failed: take it again, or give it up.
    pub(super) fn fail_group(&mut self, take: TakeId, reason: &str, retry: bool) {
        let Some(group) = self.groups.get(&take) else {
            return;
        };
        let (index, tries) = (group.index, group.tries + 1);
        if retry {
            self.budget.group_failed(take, self.book.next_take);
        } else {
            self.budget.group_unusable();
        }
        if !retry || tries >= self.config.limits.group_tries {
            self.end(take, TakeEnd::Failed(reason.to_owned()), None, false);
            return;
        }
        let requeue = Requeue {
            queue: QueueName::Front,
            entry: Queued {
                group: index,
                tries,
                samples: false,
                due: GroupIndex(0),
            },
        };
        let end = TakeEnd::Recycled(reason.to_owned());
        self.end(take, end, Some(requeue), false);
    }

    /// A group that the step does not need: its prompt is taken again, with its samples when partial rollout is on.
    pub(super) fn recycle(&mut self, take: TakeId, reason: &str) {
        let Some(group) = self.groups.get(&take) else {
            return;
        };
        let samples = self.config.partial && group.has_samples();
        let end = TakeEnd::Recycled(reason.to_owned());
        let requeue = self.requeue(group.index, group.tries, samples);
        self.end(take, end, Some(requeue), samples);
    }

    fn requeue(&self, group: GroupIndex, tries: u32, samples: bool) -> Requeue {
        let queue = if self.config.partial {
            QueueName::Front
        } else {
            QueueName::Tail
        };
        let rows = self.config.rows.max(1);
        Requeue {
            queue,
            entry: Queued {
                group,
                tries,
                samples,
                due: match queue {
                    QueueName::Front => GroupIndex(0),
                    QueueName::Tail => GroupIndex(self.book.next_group.0.div_ceil(rows) * rows),
                },
            },
        }
    }

    /// Ends what a crash left open. These prompts were wanted at that moment, so they go to the front.
    pub(super) fn recycle_open_takes(&mut self) {
        let open: Vec<_> = self
            .book
            .open
            .iter()
            .map(|(take, open)| (*take, *open))
            .collect();
        for (take, open) in open {
            let requeue = Requeue {
                queue: QueueName::Front,
                entry: Queued {
                    group: open.group,
                    tries: open.tries,
                    samples: open.samples,
                    due: GroupIndex(0),
                },
            };
            self.write(Record::Ended {
                take,
                end: TakeEnd::Recycled("restart".into()),
                requeue: Some(requeue),
            });
        }
    }

    /// Ends a take: what runs is cancelled, the record is written, the samples are moved.
    fn end(&mut self, take: TakeId, end: TakeEnd, requeue: Option<Requeue>, keep_samples: bool) {
        let Some(group) = self.groups.remove(&take) else {
            return;
        };
        let cancelled: Vec<SampleKey> = self
            .running
            .range(first_key(take)..first_key(take.next()))
            .copied()
            .collect();
        for key in cancelled {
            self.out.push(Command::Cancel { key });
        }
        let scoring = group.phase == Phase::Scoring
            || group
                .slots
                .iter()
                .any(|slot| slot.state == SlotState::Generated);
        if scoring {
            self.out.push(Command::CancelScoring { take });
        }
        if !keep_samples && !matches!(end, TakeEnd::Kept) {
            self.discarded_tokens += group.tokens;
        }
        self.write(Record::Ended {
            take,
            end: end.clone(),
            requeue,
        });
        self.out.push(Command::Settle {
            take,
            group: group.index,
            end,
            keep_samples,
        });
    }

    pub(super) fn budget_to_close(&self, now: Duration) -> Option<(Reason, String)> {
        let limits = &self.config.limits;
        match self.budget.spent(limits, self.config.rows) {
            Some(Spent::Failures(message)) => Some((Reason::ErrorBudgetExceeded, message)),
            Some(Spent::Filtered(message)) => Some((Reason::DatasetExhausted, message)),
            None => {
                let message = self.outage.spent(limits, now)?;
                Some((Reason::ErrorBudgetExceeded, message))
            }
        }
    }
}

fn first_key(take: TakeId) -> SampleKey {
    SampleKey {
        take,
        slot: 0,
        attempt: 0,
    }
}
