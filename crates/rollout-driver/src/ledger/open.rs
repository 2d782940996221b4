//! Opening: is this file system fit, whose ledger is it, who writes it now, what does it hold.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::statfs::{FsType, NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, statfs};
use rollout_engine::Book;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::writer::Owner;
use super::{database_error, load, schema};
use crate::config::JobIdentity;
use crate::error::LedgerError;
use crate::output::is_out_of_space;

/// `CIFS` and `SMB2`, which the `nix` crate does not name.
const CIFS: [i64; 2] = [0xff53_4d42, 0xfe53_4d42];

/// What an earlier process left.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// Where to continue.
    pub book: Book,
    /// Whether there was a ledger before.
    pub resumed: bool,
    /// Sessions that may still be open at the router.
    pub sessions: Vec<String>,
    /// Time since the job's first start.
    pub age: Duration,
}

pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
    pub(super) owner: Owner,
    pub(super) recovered: Recovered,
}

pub(super) fn open(
    directory: &Path,
    job: &JobIdentity,
    fingerprint: &str,
) -> Result<Opened, LedgerError> {
    std::fs::create_dir_all(directory).map_err(|source| directory_error(directory, source))?;
    refuse_network_file_system(directory)?;
    let path = directory.join("ledger.sqlite");
    let failed = |operation| {
        let directory = directory.to_owned();
        move |source| database_error(&directory, operation, source)
    };
    let mut connection = Connection::open(&path).map_err(failed("open"))?;
    connection
        .busy_timeout(Duration::from_secs(10))
        .map_err(failed("open"))?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(failed("switch to the write-ahead log"))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(LedgerError::NetworkFileSystem {
            path: directory.to_owned(),
            kind: "no shared memory",
        });
    }
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864;")
        .map_err(failed("open"))?;
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(failed("lock"))?;
    let version: i64 = transaction
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(failed("read the version"))?;
    let owner = Owner::new(job.attempt, directory);
    match version {
        0 => create(&transaction, job, fingerprint).map_err(failed("create"))?,
        schema::VERSION => check(&transaction, &path, job, fingerprint)?,
        other => {
            return Err(LedgerError::Version {
                path,
                version: other,
                ours: schema::VERSION,
            });
        }
    }
    owner.take_over(&transaction).map_err(failed("take over"))?;
    let age = age(&transaction).map_err(failed("read"))?;
    transaction.commit().map_err(failed("create"))?;
    let book = load::book(&connection)?;
    book.check()?;
    let sessions = load::sessions(&connection)?;
    Ok(Opened {
        path,
        connection,
        owner,
        recovered: Recovered {
            book,
            resumed: version != 0,
            sessions,
            age,
        },
    })
}

/// A second connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, LedgerError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |source| database_error(path, "open for reading", source);
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection
        .busy_timeout(Duration::from_secs(10))
        .map_err(failed)?;
    Ok(connection)
}

fn directory_error(directory: &Path, source: std::io::Error) -> LedgerError {
    let path = directory.to_owned();
    if is_out_of_space(&source) {
        LedgerError::NoSpace { path }
    } else {
        LedgerError::Directory { path, source }
    }
}

fn refuse_network_file_system(directory: &Path) -> Result<(), LedgerError> {
    let stat = statfs(directory)
        .map_err(|errno| directory_error(directory, std::io::Error::from(errno)))?;
    match network_kind(stat.filesystem_type()) {
        Some(kind) => Err(LedgerError::NetworkFileSystem {
            path: directory.to_owned(),
            kind,
        }),
        None => Ok(()),
    }
}

fn network_kind(kind: FsType) -> Option<&'static str> {
    if kind == NFS_SUPER_MAGIC {
        return Some("NFS");
    }
    (kind == SMB_SUPER_MAGIC || CIFS.contains(&(kind.0 & 0xffff_ffff))).then_some("SMB")
}

fn create(connection: &Connection, job: &JobIdentity, fingerprint: &str) -> rusqlite::Result<()> {
    connection.execute_batch(schema::TABLES)?;
    connection.pragma_update(None, "user_version", schema::VERSION)?;
    let started = now().as_secs().to_string();
    let attempt = job.attempt.to_string();
    let name = format!("{}/{}", job.namespace, job.name);
    let values = [
        ("job_uid", job.uid.as_str()),
        ("job", name.as_str()),
        ("dataset", fingerprint),
        ("attempt", attempt.as_str()),
        ("started", started.as_str()),
        ("next_take", "0"),
        ("next_group", "0"),
        ("step", "0"),
    ];
    for (key, value) in values {
        connection.execute(
            "INSERT INTO meta(key, value) VALUES (?1, ?2)",
            params![key, value],
        )?;
    }
    Ok(())
}

fn check(
    connection: &Connection,
    path: &Path,
    job: &JobIdentity,
    fingerprint: &str,
) -> Result<(), LedgerError> {
    let read = |key| {
        meta(connection, key).map_err(|source| database_error(path, "read whose it is", source))
    };
    if read("job_uid")?.as_deref() != Some(job.uid.as_str()) {
        return Err(LedgerError::OtherJob {
            path: path.to_owned(),
            owner: read("job")?.unwrap_or_else(|| "unknown".into()),
            job: format!("{}/{}", job.namespace, job.name),
        });
    }
    let newer: u64 = read("attempt")?
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    if newer > job.attempt {
        return Err(LedgerError::Superseded {
            attempt: job.attempt,
            newer,
        });
    }
    if read("dataset")?.as_deref() != Some(fingerprint) {
        return Err(LedgerError::OtherDataset {
            path: path.to_owned(),
        });
    }
    Ok(())
}

pub(super) fn meta(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Time since the first start by the wall clock; a clock that was set back counts as no time.
fn age(connection: &Connection) -> rusqlite::Result<Duration> {
    let started: u64 = meta(connection, "started")?
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    Ok(now().saturating_sub(Duration::from_secs(started)))
}
