//! The ledger as it is on disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use proptest::prelude::*;
use rollout_driver::config::JobIdentity;
use rollout_driver::error::LedgerError;
use rollout_driver::ledger::{Ledger, Op, Recovered, StoredSlot, Told};
use rollout_engine::{
    Book, GroupIndex, QueueName, Queued, Record, Requeue, Rung, RungOutcome, RungReport, Source,
    Step, TakeEnd, TakeId, Tally,
};
use tempfile::TempDir;

fn job(attempt: u64) -> JobIdentity {
    JobIdentity {
        name: "j".into(),
        namespace: "n".into(),
        uid: "u".into(),
        attempt,
    }
}

fn open(directory: &TempDir) -> (Ledger, Recovered, Receiver<Told>) {
    let (sender, told) = channel();
    let path = directory.path();
    let (ledger, recovered) = Ledger::open(path, &job(1), "rows", move |t| {
        sender.send(t).ok();
    })
    .unwrap();
    (ledger, recovered, told)
}

/// A sequence of records that an engine could have written, by a list of choices.
fn records(choices: &[u8]) -> Vec<Record> {
    let mut book = Book::default();
    let mut records = Vec::new();
    for choice in choices {
        let oldest = book.open.keys().next().copied();
        let record = match (choice % 8, oldest) {
            (0..=2, _) | (_, None) => {
                let head = book.front.front().map(|queued| queued.group);
                Record::Taken {
                    take: book.next_take,
                    group: head.unwrap_or(book.next_group),
                    step: book.step,
                    source: match head {
                        Some(_) => Source::Queue(QueueName::Front),
                        None => Source::Dataset,
                    },
                }
            }
            (3, Some(take)) => Record::Ended {
                take,
                end: TakeEnd::Kept,
                requeue: None,
            },
            (4, Some(take)) => Record::Ended {
                take,
                end: TakeEnd::Filtered("zero_std_0.0".into()),
                requeue: None,
            },
            (5, Some(take)) => {
                let open = book.open[&take];
                let queue = if choice / 8 % 2 == 0 {
                    QueueName::Front
                } else {
                    QueueName::Tail
                };
                Record::Ended {
                    take,
                    end: TakeEnd::Recycled("unneeded".into()),
                    requeue: Some(Requeue {
                        queue,
                        entry: Queued {
                            group: open.group,
                            tries: open.tries + 1,
                            samples: choice / 16 % 2 == 0,
                            due: GroupIndex(u64::from(*choice)),
                        },
                    }),
                }
            }
            (6, _) if choice / 8 % 4 == 0 => Record::Restored {
                step: Step(u32::from(choice / 32)),
                tally: Tally {
                    taken: 2,
                    kept: 1,
                    filtered: [("zero_std_0.0".to_owned(), 1)].into(),
                    ..Tally::default()
                },
            },
            (6, _) => Record::Rung {
                step: book.step,
                report: RungReport::new(Rung::Drain, RungOutcome::TimedOut),
            },
            (_, _) if book.open.is_empty() || choice / 8 % 4 == 0 => {
                Record::StepClosed { step: book.step }
            }
            (_, Some(take)) => Record::Ended {
                take,
                end: TakeEnd::Failed("bad_row".into()),
                requeue: None,
            },
        };
        book.apply(&record).unwrap();
        records.push(record);
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_book_on_disk_is_the_book_in_memory(choices in prop::collection::vec(any::<u8>(), 1..80)) {
        let directory = TempDir::new().unwrap();
        let records = records(&choices);
        let mut book = Book::default();
        for record in &records {
            book.apply(record).unwrap();
        }
        let (ledger, _, _told) = open(&directory);
        for chunk in records.chunks(3) {
            ledger.submit(chunk.iter().cloned().map(Op::Record).collect()).unwrap();
        }
        ledger.close();
        let (_ledger, recovered, _told) = open(&directory);
        prop_assert!(recovered.resumed);
        prop_assert_eq!(recovered.book, book);
    }
}

#[test]
fn submissions_are_told_once_they_are_durable() {
    let directory = TempDir::new().unwrap();
    let (ledger, recovered, told) = open(&directory);
    assert!(!recovered.resumed);
    let mut last = 0;
    for n in 0..100 {
        let id = format!("session-{n}");
        last = ledger.submit(vec![Op::SessionOpened { id }]).unwrap();
    }
    let mut reached = 0;
    while reached < last {
        reached = told.recv().unwrap().unwrap();
    }
    let closed = Op::SessionClosed {
        id: "session-7".into(),
    };
    ledger.submit(vec![closed]).unwrap();
    ledger.close();
    let (_, recovered, _) = open(&directory);
    assert_eq!(recovered.sessions.len(), 99);
    assert!(!recovered.sessions.contains(&"session-7".to_owned()));
}

#[test]
fn kept_rows_stay_until_the_output_has_a_later_step() {
    let directory = TempDir::new().unwrap();
    let (ledger, _, told) = open(&directory);
    let rows: Arc<[u8]> = Arc::from(&b"{}\n"[..]);
    for (take, group) in [(1, 9), (2, 3)] {
        ledger
            .submit(vec![Op::Kept {
                take: TakeId(take),
                step: Step(0),
                group: GroupIndex(group),
                rows: Arc::clone(&rows),
            }])
            .unwrap();
    }
    wait(&told, 2);
    let kept = ledger.kept(Step(0)).unwrap();
    let groups: Vec<u64> = kept.iter().map(|kept| kept.group.0).collect();
    assert_eq!(groups, [3, 9], "in the order of their groups");
    assert_eq!(kept[0].rows, b"{}\n");
    ledger
        .submit(vec![Op::StepInOutput { step: Step(0) }])
        .unwrap();
    wait(&told, 3);
    assert_eq!(ledger.kept(Step(0)).unwrap().len(), 2);
    ledger
        .submit(vec![Op::StepInOutput { step: Step(1) }])
        .unwrap();
    wait(&told, 4);
    assert!(ledger.kept(Step(0)).unwrap().is_empty());
}

fn wait(told: &Receiver<Told>, number: u64) {
    while told.recv().unwrap().unwrap() < number {}
}

#[test]
fn partial_samples_are_replaced_and_forgotten() {
    let directory = TempDir::new().unwrap();
    let (ledger, _, told) = open(&directory);
    let group = GroupIndex(5);
    let slot = |slot, samples: &[u8]| StoredSlot {
        slot,
        finished: slot == 0,
        scored: false,
        samples: samples.to_vec(),
    };
    let first = vec![slot(0, b"[1]"), slot(1, b"[2]")];
    ledger
        .submit(vec![Op::Partials {
            group,
            slots: first.clone(),
        }])
        .unwrap();
    wait(&told, 1);
    assert_eq!(ledger.partials(group).unwrap(), first);
    let second = vec![slot(1, b"[3]")];
    ledger
        .submit(vec![Op::Partials {
            group,
            slots: second.clone(),
        }])
        .unwrap();
    wait(&told, 2);
    assert_eq!(ledger.partials(group).unwrap(), second);
    ledger.submit(vec![Op::ForgetPartials { group }]).unwrap();
    wait(&told, 3);
    assert!(ledger.partials(group).unwrap().is_empty());
}

#[test]
fn a_damaged_file_is_named_and_nothing_is_overwritten() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let garbage = b"this is not a database, whatever its name says. ".repeat(40);
    std::fs::write(&path, &garbage).unwrap();
    let error = Ledger::open(directory.path(), &job(1), "rows", |_| {}).unwrap_err();
    assert!(matches!(error, LedgerError::Corrupt { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), garbage);
}

#[test]
fn a_ledger_of_a_newer_version_is_refused() {
    let directory = TempDir::new().unwrap();
    open(&directory).0.close();
    let path = directory.path().join("ledger.sqlite");
    let database = rusqlite::Connection::open(path).unwrap();
    database.pragma_update(None, "user_version", 7).unwrap();
    drop(database);
    let error = Ledger::open(directory.path(), &job(1), "rows", |_| {}).unwrap_err();
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[test]
fn two_processes_of_one_attempt_do_not_both_write() {
    let directory = TempDir::new().unwrap();
    let (older, _, told) = open(&directory);
    let (_newer, _, _told) = open(&directory);
    older
        .submit(vec![Op::SessionOpened { id: "a".into() }])
        .unwrap();
    let refused = told.recv().unwrap().unwrap_err();
    assert!(
        matches!(refused, LedgerError::Superseded { .. }),
        "{refused:?}"
    );
}

#[test]
fn a_ledger_that_does_not_sum_up_is_not_continued() {
    let directory = TempDir::new().unwrap();
    let (ledger, _, _told) = open(&directory);
    let taken = Record::Taken {
        take: TakeId(0),
        group: GroupIndex(0),
        step: Step(0),
        source: Source::Dataset,
    };
    ledger.submit(vec![Op::Record(taken)]).unwrap();
    ledger.close();
    let path = directory.path().join("ledger.sqlite");
    let database = rusqlite::Connection::open(path).unwrap();
    database
        .execute("UPDATE takes SET state = 'vanished'", [])
        .unwrap();
    drop(database);
    let error = Ledger::open(directory.path(), &job(1), "rows", |_| {}).unwrap_err();
    assert!(matches!(error, LedgerError::Sum(_)), "{error:?}");
}
