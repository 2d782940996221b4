//! A shell without IO: commands are collected, a test answers them.

use std::collections::VecDeque;
use std::time::Duration;

use rollout_engine::{
    Book, Command, Engine, EngineConfig, Event, JobResult, Record, Rung, RungOutcome, RungReport,
    SampleEnd, SampleKey, ScoreEnd, Step, TakeEnd, TakeId, Verdict,
};

/// The engine, the records that it wrote, and the commands that nobody answered yet.
pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) records: Vec<Record>,
    pub(crate) pending: VecDeque<Command>,
    pub(crate) settled: Vec<(TakeId, TakeEnd)>,
    pub(crate) result: Option<JobResult>,
    pub(crate) now: Duration,
}

impl Rig {
    pub(crate) fn start(config: EngineConfig) -> Self {
        Self::resume(config, Vec::new())
    }

    /// Continues from the records that reached the disk.
    pub(crate) fn resume(config: EngineConfig, records: Vec<Record>) -> Self {
        let mut rig = Self {
            engine: Engine::resume(config, replay(&records)),
            records,
            pending: VecDeque::new(),
            settled: Vec::new(),
            result: None,
            now: Duration::ZERO,
        };
        rig.send(Event::Start);
        rig
    }

    pub(crate) fn send(&mut self, event: Event) {
        for command in self.engine.handle(event, self.now) {
            match command {
                Command::Write(record) => self.records.push(record),
                Command::Settle { take, end, .. } => self.settled.push((take, end)),
                Command::Finish(result) => self.result = Some(result),
                other => self.pending.push_back(other),
            }
        }
        self.engine.book().check().expect("the ledger sums up");
    }

    /// Takes the first pending command that fits.
    pub(crate) fn take_command(&mut self, fits: impl Fn(&Command) -> bool) -> Option<Command> {
        let at = self.pending.iter().position(fits)?;
        self.pending.remove(at)
    }

    pub(crate) fn load_all(&mut self) {
        while let Some(Command::Load { take, .. }) =
            self.take_command(|c| matches!(c, Command::Load { .. }))
        {
            self.send(Event::PromptReady {
                take,
                slots: Vec::new(),
            });
        }
    }

    pub(crate) fn generating(&self) -> Vec<SampleKey> {
        self.pending
            .iter()
            .filter_map(|c| match c {
                Command::Generate { key, .. } => Some(*key),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn end_sample(&mut self, key: SampleKey, end: SampleEnd) {
        self.take_command(|c| matches!(c, Command::Generate { key: of, .. } if *of == key));
        self.take_command(|c| *c == Command::Cancel { key });
        self.send(Event::SampleEnded { key, end });
    }

    pub(crate) fn finish_sample(&mut self, key: SampleKey) {
        self.end_sample(
            key,
            SampleEnd::Finished {
                scorable: true,
                tokens: 10,
            },
        );
    }

    pub(crate) fn score_all(&mut self) {
        while let Some(Command::Score { take, slot }) =
            self.take_command(|c| matches!(c, Command::Score { .. }))
        {
            self.send(Event::SampleScored {
                take,
                slot,
                end: ScoreEnd::Scored,
            });
        }
    }

    /// Generates and scores a whole group; its filter question stays pending.
    pub(crate) fn finish_group(&mut self, take: TakeId) {
        self.load_all();
        for key in self.generating().into_iter().filter(|k| k.take == take) {
            self.finish_sample(key);
        }
        self.score_all();
    }

    pub(crate) fn filter(&mut self, take: TakeId, verdict: Verdict) {
        let asked = self.take_command(|c| *c == Command::Filter { take });
        assert!(asked.is_some(), "no filter question about take {take}");
        self.send(Event::Filtered { take, verdict });
    }

    pub(crate) fn keep_group(&mut self, take: TakeId) {
        self.finish_group(take);
        self.filter(take, Verdict::Keep);
    }

    pub(crate) fn climbing(&self) -> Option<Rung> {
        self.pending.iter().rev().find_map(|c| match c {
            Command::Climb { rung, .. } => Some(*rung),
            _ => None,
        })
    }

    pub(crate) fn answer_rung(&mut self, rung: Rung, outcome: RungOutcome) {
        self.take_command(|c| matches!(c, Command::Climb { rung: r, .. } if *r == rung));
        self.send(Event::RungEnded {
            rung,
            report: RungReport::new(rung, outcome),
        });
    }

    /// Climbs through the whole ladder: what is in flight ends as aborted.
    pub(crate) fn tear_down(&mut self) {
        self.load_all();
        for key in self.generating() {
            self.end_sample(key, SampleEnd::Aborted { tokens: 3 });
        }
        while let Some(Command::Climb { rung, .. }) =
            self.take_command(|c| matches!(c, Command::Climb { .. }))
        {
            if !matches!(rung, Rung::Drain | Rung::Collect) {
                self.answer_rung(rung, RungOutcome::Done);
            }
        }
    }

    pub(crate) fn write_step(&mut self) -> Step {
        let command = self.take_command(|c| matches!(c, Command::WriteStep { .. }));
        let Some(Command::WriteStep { step, .. }) = command else {
            panic!("no step to write, pending: {:?}", self.pending);
        };
        self.send(Event::StepWritten);
        step
    }

    pub(crate) fn end_of(&self, take: u64) -> Option<&TakeEnd> {
        self.settled
            .iter()
            .find(|(id, _)| *id == TakeId(take))
            .map(|(_, end)| end)
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += by;
        self.send(Event::Tick);
    }
}

pub(crate) fn replay(records: &[Record]) -> Book {
    let mut book = Book::default();
    for record in records {
        book.apply(record).expect("a record of the engine fits");
    }
    book
}
