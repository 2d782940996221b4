//! Reads every row once, before a job starts: what is wrong is known at the start, not after an hour.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Dataset, RowError};

/// Rows that one worker takes at a time.
const STRIDE: u64 = 1024;
const MAX_WORKERS: usize = 8;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// Rows that were read: those of one epoch.
    pub rows: u64,
    /// Rows that cannot be used.
    pub bad: u64,
    /// The first of them, in file order; at most as many as were asked for.
    pub errors: Vec<RowError>,
}

impl Dataset {
    /// Reads every row of an epoch on all processors and returns the first `max_errors` errors. Blocking.
    pub fn check(&self, max_errors: usize) -> CheckReport {
        let workers = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_WORKERS);
        let next = AtomicU64::new(0);
        let bad = AtomicU64::new(0);
        let errors = Mutex::new(Vec::<(u64, RowError)>::new());
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| self.check_strides(&next, &bad, max_errors, &errors));
            }
        });
        let mut errors = errors.into_inner();
        errors.sort_by_key(|(row, _)| *row);
        errors.truncate(max_errors);
        CheckReport {
            rows: self.rows(),
            bad: bad.into_inner(),
            errors: errors.into_iter().map(|(_, error)| error).collect(),
        }
    }

    fn check_strides(
        &self,
        next: &AtomicU64,
        bad: &AtomicU64,
        max_errors: usize,
        errors: &Mutex<Vec<(u64, RowError)>>,
    ) {
        loop {
            let start = next.fetch_add(STRIDE, Ordering::Relaxed);
            if start >= self.rows() {
                return;
            }
            for offset in start..self.rows().min(start + STRIDE) {
                let row = self.index.first() + offset;
                if let Err(error) = self.content(row) {
                    bad.fetch_add(1, Ordering::Relaxed);
                    keep_first(&mut errors.lock(), row, error, max_errors);
                }
            }
        }
    }
}

/// Keeps the `most` errors with the lowest rows.
fn keep_first(errors: &mut Vec<(u64, RowError)>, row: u64, error: RowError, most: usize) {
    if errors.len() < most {
        errors.push((row, error));
        return;
    }
    if let Some(last) = errors.iter_mut().max_by_key(|(row, _)| *row)
        && last.0 > row
    {
        *last = (row, error);
    }
}
