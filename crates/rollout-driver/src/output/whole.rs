//! Files that appear whole or not at all.
//!
//! A file is written under a temporary name in its own directory, made durable, renamed, and the rename is made durable too. A crash
//! leaves the old file, the new file, or a temporary one that [`remove_leftovers`] takes away.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::OutputError;
use crate::digest::hex;

const SUFFIX: &str = ".tmp";

/// A file being written: counts and hashes what goes in.
#[derive(Debug)]
pub(super) struct Sink<W: Write = BufWriter<File>> {
    inner: W,
    bytes: u64,
    hash: Sha256,
}

/// What a whole file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl<W: Write> Sink<W> {
    pub(super) fn new(inner: W) -> Self {
        Self {
            inner,
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    pub(super) fn finish(self) -> (W, Written) {
        (
            self.inner,
            Written {
                bytes: self.bytes,
                sha256: hex(self.hash),
            },
        )
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hash.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes a file with `fill`, then asks `may_appear`, then lets it appear. On any error the old file stays, and nothing else.
pub(super) fn write<T>(
    path: &Path,
    fill: impl FnOnce(&mut Sink) -> Result<T, OutputError>,
    may_appear: impl FnOnce() -> Result<(), OutputError>,
) -> Result<(T, Written), OutputError> {
    let temporary = temporary_name(path);
    let result = fill_temporary(&temporary, fill).and_then(|filled| {
        may_appear()?;
        fs::rename(&temporary, path).map_err(|source| OutputError::io("write", path, source))?;
        sync_directory(path)?;
        Ok(filled)
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn fill_temporary<T>(
    temporary: &Path,
    fill: impl FnOnce(&mut Sink) -> Result<T, OutputError>,
) -> Result<(T, Written), OutputError> {
    let failed = |source| OutputError::io("write", temporary, source);
    let mut sink = Sink::new(BufWriter::new(File::create(temporary).map_err(failed)?));
    let filled = fill(&mut sink)?;
    let (buffer, written) = sink.finish();
    let target = buffer
        .into_inner()
        .map_err(|error| failed(error.into_error()))?;
    target.sync_all().map_err(failed)?;
    Ok((filled, written))
}

/// Hidden, so that nobody takes it for output.
fn temporary_name(path: &Path) -> std::path::PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{SUFFIX}"))
}

fn sync_directory(path: &Path) -> Result<(), OutputError> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| OutputError::io("write", path, source))
}

/// Makes a directory, and its name durable.
pub(super) fn create_directory(path: &Path) -> Result<(), OutputError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|source| {
        match path.ancestors().find(|place| place.is_file()) {
            Some(file) => OutputError::FileInTheWay {
                path: path.to_owned(),
                file: file.to_owned(),
            },
            None => OutputError::io("create", path, source),
        }
    })?;
    sync_directory(path)
}

/// A whole file; `None` when there is none.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, OutputError> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OutputError::io("read", path, error)),
    }
}

/// Removes temporary files that a crash left in a directory.
pub(super) fn remove_leftovers(directory: &Path) -> Result<(), OutputError> {
    for entry in list(directory)? {
        if entry.starts_with('.') && entry.ends_with(SUFFIX) {
            let path = directory.join(entry);
            fs::remove_file(&path).map_err(|source| OutputError::io("remove", &path, source))?;
        }
    }
    Ok(())
}

/// Names of the entries of a directory, sorted; none when there is no such directory.
pub(super) fn list(directory: &Path) -> Result<Vec<String>, OutputError> {
    let failed = |source| OutputError::io("list", directory, source);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(
            entry
                .map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(
        path: &Path,
        text: &str,
        may_appear: impl FnOnce() -> Result<(), OutputError>,
    ) -> Result<Written, OutputError> {
        let fill = |sink: &mut Sink| {
            sink.write_all(text.as_bytes())
                .map_err(|e| OutputError::io("write", path, e))
        };
        write(path, fill, may_appear).map(|((), written)| written)
    }

    #[test]
    fn a_file_appears_with_its_hash() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.jsonl");
        let written = text(&path, "abc", || Ok(())).expect("written");
        assert_eq!(written.bytes, 3);
        assert_eq!(
            written.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(fs::read(&path).expect("a file"), b"abc");
        assert_eq!(list(directory.path()).expect("listed"), ["a.jsonl"]);
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.jsonl");
        text(&path, "old", || Ok(())).expect("written");
        let superseded = || {
            Err(OutputError::Superseded {
                directory: directory.path().into(),
                attempt: 1,
                owner: 2,
            })
        };
        assert_eq!(
            text(&path, "new", superseded).expect_err("refused").label(),
            "superseded"
        );
        let full = write(
            &path,
            |sink| {
                sink.write_all(b"half of it").expect("written");
                Err::<(), _>(OutputError::io(
                    "write",
                    &path,
                    io::ErrorKind::StorageFull.into(),
                ))
            },
            || Ok(()),
        );
        assert_eq!(full.expect_err("full").label(), "no_space");
        assert_eq!(fs::read(&path).expect("a file"), b"old");
        assert_eq!(list(directory.path()).expect("listed"), ["a.jsonl"]);
    }

    #[test]
    fn what_a_crash_left_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in [".a.jsonl.tmp", "b.jsonl", ".hidden"] {
            fs::write(directory.path().join(name), "x").expect("written");
        }
        remove_leftovers(directory.path()).expect("removed");
        assert_eq!(
            list(directory.path()).expect("listed"),
            [".hidden", "b.jsonl"]
        );
        remove_leftovers(&directory.path().join("absent")).expect("nothing to do");
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_is_named() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("notes.txt");
        fs::write(&file, "x").expect("written");
        for path in [file.clone(), file.join("out"), file.join("out/.rollout")] {
            let error = create_directory(&path).expect_err("a file is there");
            assert_eq!(
                error.to_string(),
                format!(
                    "cannot create the directory {}: {} is a file; choose another place",
                    path.display(),
                    file.display()
                )
            );
        }
    }

    #[test]
    fn a_full_file_system_is_named() {
        for (code, label) in [
            (28, "no_space"),
            (122, "no_space"),
            (27, "no_space"),
            (5, "io"),
            (30, "io"),
        ] {
            let error = OutputError::io(
                "write",
                Path::new("out/a.jsonl"),
                io::Error::from_raw_os_error(code),
            );
            assert_eq!(error.label(), label, "{code}");
        }
        let error = OutputError::io(
            "write",
            Path::new("out/a.jsonl"),
            io::Error::from_raw_os_error(28),
        );
        assert_eq!(
            error.to_string(),
            "no space left to write out/a.jsonl: nothing of it was written; free some, the same job started again goes on where it was"
        );
    }
}
