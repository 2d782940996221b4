//! The log file of a child process: what it has written since it was started, and why it says that it ended.
//!
//! Logs are appended to, over restarts and over runs: what was there before is not the word of this child.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::workdir::shown;

/// Most bytes of a log that an error shows.
const TAIL: u64 = 2048;

/// What this program writes before the reason why it could not go on.
const REASON: &str = "error: ";

/// The log of one child.
#[derive(Debug, Clone)]
pub(super) struct Log {
    path: PathBuf,
    /// Its length when the child was started.
    start: u64,
}

impl Log {
    /// The log of a child that is about to be started.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            start: fs::metadata(path).map_or(0, |file| file.len()),
        }
    }

    /// Opens it for appending.
    pub(super) fn open(&self) -> io::Result<File> {
        if let Some(parent) = self.path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(&self.path)
    }

    /// How a child ended: in its own words, if it said why, else with the end of its log.
    pub(super) fn ended(&self, how: &str) -> String {
        let log = shown(&self.path);
        match self.reason() {
            Some(reason) => format!("{reason} (it {how}; its log: {log})"),
            None => match self.tail() {
                tail if tail.is_empty() => format!("it {how} without a word in its log ({log})"),
                tail => format!("it {how}; its log ({log}) ends with:\n{tail}"),
            },
        }
    }

    /// Why the child ended, if it has said that.
    pub(super) fn reason(&self) -> Option<String> {
        let tail = self.tail();
        let begins = tail.rfind(&format!("\n{REASON}")).map(|at| at + 1);
        let reason = &tail[begins.unwrap_or(0)..];
        reason.strip_prefix(REASON).map(str::to_owned)
    }

    /// The end of what the child has written.
    fn tail(&self) -> String {
        let bytes = self.read().unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(self.start.max(length.saturating_sub(TAIL))))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The log of a child after one that wrote `before`.
    fn log(before: &str, written: &str) -> (tempfile::TempDir, Log) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("logs/driver.log");
        let write = |text: &str| {
            let log = Log::of(&path);
            log.open().unwrap().write_all(text.as_bytes()).unwrap();
            log
        };
        write(before);
        let log = write(written);
        (home, log)
    }

    fn ended(before: &str, written: &str) -> String {
        let (home, log) = log(before, written);
        let directory = format!("{}/", home.path().display());
        log.ended("ended with exit status: 1")
            .replace(&directory, "")
    }

    #[test]
    fn the_reason_comes_first() {
        assert_eq!(
            ended(
                "",
                "INFO begins\nerror: old\nerror: the data set a is empty\n"
            ),
            "the data set a is empty (it ended with exit status: 1; its log: logs/driver.log)"
        );
        assert_eq!(
            ended("", "error: two\nlines\n"),
            "two\nlines (it ended with exit status: 1; its log: logs/driver.log)"
        );
    }

    #[test]
    fn a_child_that_does_not_say_why_is_shown_with_the_end_of_its_log() {
        assert_eq!(
            ended("error: of another\n", "INFO begins\n"),
            "it ended with exit status: 1; its log (logs/driver.log) ends with:\nINFO begins"
        );
        assert_eq!(
            ended("error: of another\n", ""),
            "it ended with exit status: 1 without a word in its log (logs/driver.log)"
        );
    }

    #[test]
    fn a_long_log_is_cut_in_front() {
        let (_home, log) = log("", &format!("{}\nerror: full\n", "ä".repeat(9000)));
        assert_eq!(log.reason().unwrap(), "full");
        assert!(log.tail().len() < 3 * usize::try_from(TAIL).unwrap());
    }
}
