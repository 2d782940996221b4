//! The tables. A change of them is a new version.

/// Version of the tables, in `PRAGMA user_version`.
pub(super) const VERSION: i64 = 1;

pub(super) const TABLES: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE takes(
    take INTEGER PRIMARY KEY,
    group_index INTEGER NOT NULL,
    step INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX open_takes ON takes(take) WHERE state = 'open';
CREATE TABLE queue(
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    group_index INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    due INTEGER NOT NULL
);
CREATE TABLE rungs(position INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, report TEXT NOT NULL);
CREATE TABLE kept(
    take INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    group_index INTEGER NOT NULL,
    rows BLOB NOT NULL
);
CREATE TABLE partials(
    group_index INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    scored INTEGER NOT NULL,
    samples BLOB NOT NULL,
    PRIMARY KEY(group_index, slot)
) WITHOUT ROWID;
CREATE TABLE sessions(id TEXT PRIMARY KEY) WITHOUT ROWID;
";
