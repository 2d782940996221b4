//! Opening: make the file, or read it; set a damaged one aside.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::entry::Row;
use super::load::{self, Recovered};
use super::salvage::{self, Salvage};
use super::writer::insert;
use super::{JournalError, JournalOptions, Sync};

/// Of the table below.
const VERSION: i64 = 1;
/// What is larger was never a version.
const LAST_VERSION: i64 = 1_000;

/// Bytes of the header of a file.
const HEADER: usize = 100;

/// A turn, a beginning and an end are there once; of requests there are many.
const TABLES: &str = "
    CREATE TABLE entries(
        id INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        session TEXT NOT NULL,
        number INTEGER NOT NULL,
        rid TEXT,
        body BLOB NOT NULL,
        sum INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX once ON entries(session, kind, number) WHERE kind <> 2;
    CREATE INDEX sent ON entries(session, rid) WHERE kind = 2;
";

/// For another process to let go of the file.
const BUSY: Duration = Duration::from_secs(2);

pub(super) fn open(
    path: &Path,
    options: JournalOptions,
) -> Result<(Connection, Recovered), JournalError> {
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        fs::create_dir_all(directory).map_err(|source| JournalError::file(path, source))?;
    }
    let fresh = beside(path, ".new");
    let is_there = |path: &Path| {
        path.try_exists()
            .map_err(|source| JournalError::file(path, source))
    };
    if !is_there(path)? {
        // A log without its file would be played into the next one.
        remove(path)?;
        // A file gets its name when it is whole: a new one that is there was finished.
        if is_there(&fresh)? && is_whole(&fresh) {
            rename(&fresh, path)?;
        } else {
            make(&fresh, path, &[])?;
        }
    }
    remove(&fresh)?;
    let mut recovered = Recovered::default();
    match read(path)? {
        (Some(connection), rows) if rows.damage.is_empty() => {
            recovered.sessions = load::sessions(rows.rows, &mut recovered.damage);
            if recovered.damage.is_empty() {
                return Ok((configured(path, connection, options)?, recovered));
            }
        }
        (_, rows) => {
            recovered.damage = rows.damage;
            recovered.sessions = load::sessions(rows.rows, &mut recovered.damage);
        }
    }
    let rows: Vec<Row> = recovered
        .sessions
        .iter()
        .flat_map(load::RecoveredSession::rows)
        .collect();
    build(&fresh, &rows)?;
    let aside = beside(path, ".damaged");
    remove(&aside)?;
    rename(path, &aside)?;
    rename(&fresh, path)?;
    recovered.set_aside = Some(aside);
    let connection = connect(path).map_err(|source| JournalError::database(path, source))?;
    Ok((configured(path, connection, options)?, recovered))
}

/// The same path with something more at its end.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A file with its log.
fn family(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")]
}

fn rename(from: &Path, to: &Path) -> Result<(), JournalError> {
    for (from, to) in family(from).iter().zip(family(to)) {
        match fs::rename(from, &to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(JournalError::file(from, error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), JournalError> {
    for path in family(path) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(JournalError::file(&path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    // One process has the file; nobody needs shared memory.
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;")?;
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT;")?;
    Ok(connection)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn is_whole(path: &Path) -> bool {
    connect(path).and_then(|connection| version(&connection)) == Ok(VERSION)
}

/// Makes a file under a name of its own, then gives it its name.
fn make(fresh: &Path, path: &Path, rows: &[Row]) -> Result<(), JournalError> {
    build(fresh, rows)?;
    rename(fresh, path)
}

fn build(fresh: &Path, rows: &[Row]) -> Result<(), JournalError> {
    remove(fresh)?;
    let failed = |source| JournalError::database(fresh, source);
    let mut connection = connect(fresh).map_err(failed)?;
    let transaction = connection.transaction().map_err(failed)?;
    transaction.execute_batch(TABLES).map_err(failed)?;
    for row in rows {
        insert(&transaction, row).map_err(failed)?;
    }
    // The version comes with the rest: a file that has it has everything.
    transaction
        .pragma_update(None, "user_version", VERSION)
        .map_err(failed)?;
    transaction.commit().map_err(failed)?;
    connection.close().map_err(|(_, source)| failed(source))
}

/// Reads a file. Without a connection the file cannot be used any more.
fn read(path: &Path) -> Result<(Option<Connection>, Salvage), JournalError> {
    let is_empty = fs::metadata(path)
        .map_err(|source| JournalError::file(path, source))?
        .len()
        == 0;
    if is_empty {
        return Ok((None, Salvage::nothing("the file is empty".to_owned())));
    }
    let opened = connect(path).and_then(|connection| Ok((version(&connection)?, connection)));
    let connection = match opened {
        Ok((VERSION, connection)) => connection,
        Ok((found, _)) if (1..=LAST_VERSION).contains(&found) => {
            return Err(JournalError::Version {
                path: path.to_owned(),
                found,
                ours: VERSION,
            });
        }
        Ok((_, connection)) => {
            drop(connection);
            let problem = "the file's version is lost".to_owned();
            return Ok((None, read_without_header(path, problem)?));
        }
        Err(error) if is_damage(path, &error) => {
            let problem = format!("the file cannot be read: {error}");
            return Ok((None, read_without_header(path, problem)?));
        }
        Err(source) => return Err(JournalError::database(path, source)),
    };
    let mut found = salvage::read(&connection);
    let check: rusqlite::Result<String> =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
    match check {
        Ok(word) if word == "ok" => {}
        Ok(word) => found.damage.push(format!("the file is damaged: {word}")),
        Err(error) => found.damage.push(format!("the file is damaged: {error}")),
    }
    Ok((Some(connection), found))
}

/// Reads a file whose header is not what it was, by way of a copy with the header of a new file: all our files have the same one.
fn read_without_header(path: &Path, problem: String) -> Result<Salvage, JournalError> {
    let copy = beside(path, ".repair");
    build(&copy, &[])?;
    let patched = patch(path, &copy).map_err(|source| JournalError::file(&copy, source));
    let found = patched.map(|()| {
        connect(&copy).map_or_else(
            |_| Salvage::default(),
            |connection| salvage::read(&connection),
        )
    });
    remove(&copy)?;
    let found = found?;
    let mut salvage = Salvage::nothing(problem);
    if !found.rows.is_empty() {
        salvage.damage.extend(found.damage);
        salvage.rows = found.rows;
    }
    Ok(salvage)
}

/// Makes `copy`, a new file, a copy of `path` and its log that keeps its header.
fn patch(path: &Path, copy: &Path) -> std::io::Result<()> {
    let mut header = [0; HEADER];
    fs::File::open(copy)?.read_exact(&mut header)?;
    let pages =
        fs::copy(path, copy)? / u64::from(u16::from_be_bytes([header[16], header[17]])).max(1);
    // The size in pages, and an empty list of free ones.
    header[28..32].copy_from_slice(&u32::try_from(pages).unwrap_or(0).to_be_bytes());
    header[32..40].fill(0);
    let mut file = fs::OpenOptions::new().write(true).open(copy)?;
    file.write_all(&header)?;
    match fs::copy(beside(path, "-wal"), beside(copy, "-wal")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an error says that the file is not what it was, and not that the place is not fit.
fn is_damage(path: &Path, error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        None
        | Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory,
        ) => false,
        // What SQLite says of a file that ends within a page.
        Some(ErrorCode::SystemIoFailure) => error
            .sqlite_error()
            .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ),
        // A header can say that a file is only to be read.
        Some(ErrorCode::ReadOnly) => fs::OpenOptions::new().append(true).open(path).is_ok(),
        Some(_) => true,
    }
}

fn configured(
    path: &Path,
    connection: Connection,
    options: JournalOptions,
) -> Result<Connection, JournalError> {
    let failed = |source| JournalError::database(path, source);
    let page_size: u32 = connection
        .query_row("PRAGMA page_size", [], |row| row.get(0))
        .map_err(failed)?;
    let pages = (options.max_bytes / u64::from(page_size.max(1))).max(1);
    let synchronous = match options.sync {
        Sync::Process => "NORMAL",
        Sync::Power => "FULL",
    };
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = {synchronous}; PRAGMA max_page_count = {pages}; PRAGMA journal_size_limit = 67108864;"
        ))
        .map_err(failed)?;
    Ok(connection)
}
