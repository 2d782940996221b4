//! A new ledger beside an output that is not new: the node of the earlier attempt is gone, what it kept is not.
//!
//! Finished steps stay finished. Kept groups of the step that was under way stay kept; the groups between them, whose fate nobody knows
//! any more, are counted as lost and taken again. The cursor continues behind the last group that was seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use rollout_engine::{
    Book, BookError, GroupIndex, QueueName, Queued, Record, Requeue, Source, Step, TakeEnd, Tally,
};

use crate::config::DriverConfig;
use crate::error::{DriverError, LedgerError};
use crate::ledger::{Ledger, Op};
use crate::output::{KeptPart, ResultEntry, Writer};

/// The name under which a step's manifest entry holds the cursor.
pub(super) const CURSOR: &str = "cursor/next_group";

/// Rebuilds the book from the output and stores it. A new job gets an empty one.
pub(super) async fn rebuild(
    output: Arc<Writer>,
    ledger: Arc<Ledger>,
    config: &DriverConfig,
) -> Result<Book, DriverError> {
    let (target, steps) = (config.spec.rollout.batch_size, config.spec.rollout.steps);
    let rebuilt = tokio::task::spawn_blocking(move || read(&output, &ledger, target, steps)).await;
    rebuilt.map_err(|error| DriverError::Task {
        problem: error.to_string(),
    })?
}

fn read(output: &Writer, ledger: &Ledger, target: u32, steps: u32) -> Result<Book, DriverError> {
    let mut step = 0;
    let mut cursor = 0;
    let mut finished = Vec::new();
    while step < steps
        && let Some(entry) = output.finished(step)
    {
        let next = entry
            .metrics
            .get(CURSOR)
            .and_then(serde_json::Value::as_u64);
        cursor = next.unwrap_or(cursor);
        // Counts that contradict each other would spoil the new ledger; who verifies the output is told of them.
        let counts = Some(entry.ledger).filter(|tally| tally.taken == tally.ended());
        finished.push(counts.unwrap_or_default());
        step += 1;
    }
    let recovered = output.recover(step).map_err(DriverError::Output)?;
    for error in &recovered.broken {
        tracing::warn!(%error, "a part of the output cannot be used: its group is taken again");
    }
    if step == 0 && recovered.groups.is_empty() && output.result().is_none() {
        return Ok(Book::default());
    }
    let kept: Vec<KeptPart> = recovered.groups.into_iter().take(target as usize).collect();
    let groups: Vec<u64> = kept.iter().map(|part| part.group).collect();
    let (mut book, mut records) = plan(finished, cursor, &groups).map_err(LedgerError::Sum)?;
    if let Some(ResultEntry { result, .. }) = output.result() {
        let finished = Record::Finished { result };
        book.apply(&finished).map_err(LedgerError::Sum)?;
        records.push(finished);
    }
    tracing::info!(
        step,
        kept = kept.len(),
        "the ledger is new, the output is not: continuing from it"
    );
    let mut rows: BTreeMap<u64, Arc<[u8]>> = kept
        .into_iter()
        .map(|part| (part.group, part.rows.into()))
        .collect();
    let mut ops = Vec::new();
    for record in records {
        if let Record::Taken { take, group, .. } = &record
            && let Some(rows) = rows.remove(&group.0)
        {
            ops.push(Op::Kept {
                take: *take,
                step: Step(step),
                group: *group,
                rows,
            });
        }
        ops.push(Op::Record(record));
    }
    ledger.submit(ops)?;
    Ok(book)
}

/// The records that bring a new book to where the output is.
fn plan(finished: Vec<Tally>, cursor: u64, kept: &[u64]) -> Result<(Book, Vec<Record>), BookError> {
    let mut book = Book::default();
    let mut records = Vec::new();
    let mut add = |book: &mut Book, record: Record| {
        book.apply(&record)?;
        records.push(record);
        Ok::<(), BookError>(())
    };
    let mut step = Step(0);
    for tally in finished {
        add(&mut book, Record::Restored { step, tally })?;
        add(&mut book, Record::StepClosed { step })?;
        step = step.next();
    }
    let next = kept
        .iter()
        .map(|group| group + 1)
        .max()
        .unwrap_or(0)
        .max(cursor);
    // Kept groups may come from before the cursor: they had been recycled.
    let seen = kept
        .iter()
        .copied()
        .filter(|group| *group < cursor)
        .chain(cursor..next);
    for group in seen {
        let (take, index) = (book.next_take, GroupIndex(group));
        add(
            &mut book,
            Record::Taken {
                take,
                group: index,
                step,
                source: Source::Dataset,
            },
        )?;
        let is_kept = kept.contains(&group);
        add(
            &mut book,
            Record::Ended {
                take,
                end: if is_kept {
                    TakeEnd::Kept
                } else {
                    TakeEnd::Lost("ledger_gone".into())
                },
                requeue: (!is_kept).then_some(Requeue {
                    queue: QueueName::Front,
                    entry: Queued {
                        group: index,
                        tries: 0,
                        samples: false,
                        due: GroupIndex(0),
                    },
                }),
            },
        )?;
    }
    add(
        &mut book,
        Record::Cursor {
            next_group: GroupIndex(next),
        },
    )?;
    Ok((book, records))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(kept: u64) -> Tally {
        Tally {
            taken: kept,
            kept,
            ..Tally::default()
        }
    }

    #[test]
    fn kept_groups_stay_kept_and_the_others_are_taken_again() {
        let (book, _) = plan(vec![tally(8)], 10, &[4, 11, 13]).unwrap();
        assert_eq!(book.step, Step(1));
        assert_eq!(book.kept(), 3);
        assert_eq!(book.next_group, GroupIndex(14));
        let again: Vec<u64> = book.front.iter().map(|queued| queued.group.0).collect();
        assert_eq!(again, [10, 12]);
        assert_eq!(book.total().lost["ledger_gone"], 2);
        assert_eq!(book.total().kept, 11);
        book.check().unwrap();
    }

    #[test]
    fn an_output_with_only_finished_steps_gives_the_cursor_and_the_counts() {
        let (book, _) = plan(vec![tally(8), tally(7)], 64, &[]).unwrap();
        assert_eq!((book.step, book.next_group), (Step(2), GroupIndex(64)));
        assert_eq!(book.total(), tally(15));
        book.check().unwrap();
    }
}
