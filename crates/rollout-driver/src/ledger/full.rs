//! A full file system, as SQLite reports one.

use std::sync::mpsc::channel;

use rollout_engine::{GroupIndex, Step, TakeId};
use tempfile::TempDir;

use super::writer::Writer;
use super::{Op, open};
use crate::config::JobIdentity;
use crate::error::LedgerError;

#[test]
fn a_full_disk_stops_the_writer_with_a_clear_error_and_keeps_what_was_durable() {
    let directory = TempDir::new().unwrap();
    let job = JobIdentity {
        name: "j".into(),
        namespace: "n".into(),
        uid: "u".into(),
        attempt: 1,
    };
    let opened = open::open(directory.path(), &job, "rows").unwrap();
    let connection = opened.connection;
    // SQLite's own limit gives its own "database or disk is full".
    connection
        .pragma_update(None, "max_page_count", 40)
        .unwrap();
    let (sender, told) = channel();
    let writer = Writer::start(connection, opened.owner, move |t| {
        sender.send(t).ok();
    })
    .unwrap();
    let kept = |take: u64, bytes: usize| Op::Kept {
        take: TakeId(take),
        step: Step(0),
        group: GroupIndex(take),
        rows: vec![b'x'; bytes].into(),
    };
    writer.submit(vec![kept(0, 10)]).unwrap();
    assert_eq!(told.recv().unwrap().unwrap(), 1);
    writer.submit(vec![kept(1, 1 << 20)]).unwrap();
    let error = told.recv().unwrap().unwrap_err();
    assert!(matches!(error, LedgerError::NoSpace { .. }), "{error:?}");
    assert!(error.to_string().contains("no space left"), "{error}");
    drop(writer);
    let again = open::open(directory.path(), &job, "rows").unwrap();
    let kept = super::load::kept(&again.connection, Step(0)).unwrap();
    assert_eq!(kept.len(), 1, "what was durable still is");
}
