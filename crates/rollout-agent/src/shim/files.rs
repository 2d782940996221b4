//! The files of one session, in a directory that only its user can enter, removed with the session.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{private::PrivateDirectory, wire::Start};

/// Largest result file, in bytes.
const MAX_RESULT: u64 = 4 * 1024 * 1024;

/// A session's files; dropping it removes them.
#[derive(Debug)]
pub(super) struct SessionFiles {
    directory: PrivateDirectory,
}

impl SessionFiles {
    pub(super) fn create(parent: &Path, start: &Start) -> io::Result<Self> {
        let files = Self {
            directory: PrivateDirectory::create(parent, "session")?,
        };
        files.write("prompt.json", &start.prompt)?;
        files.write("request.json", &start.request_kwargs)?;
        files.write("metadata.json", &start.metadata)?;
        Ok(files)
    }

    fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.directory.path().join(name))?;
        serde_json::to_writer(file, value).map_err(io::Error::from)
    }

    /// The variables that name the files.
    pub(super) fn environment(&self) -> [(&'static str, PathBuf); 4] {
        [
            (
                "ROLLOUT_PROMPT_FILE",
                self.directory.path().join("prompt.json"),
            ),
            (
                "ROLLOUT_REQUEST_FILE",
                self.directory.path().join("request.json"),
            ),
            (
                "ROLLOUT_METADATA_FILE",
                self.directory.path().join("metadata.json"),
            ),
            ("ROLLOUT_RESULT_FILE", self.result_path()),
        ]
    }

    fn result_path(&self) -> PathBuf {
        self.directory.path().join("result.json")
    }

    /// What the agent wrote; `None` when it wrote nothing.
    ///
    /// # Errors
    /// A text for the agent's author when the file is not a JSON object of bounded size, or no regular file.
    pub(super) fn result(&self) -> Result<Option<Map<String, Value>>, String> {
        let problem = |text: &dyn std::fmt::Display| format!("ROLLOUT_RESULT_FILE: {text}");
        // Not a link out of the directory, and not a pipe that waits for ever.
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let file = match OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(self.result_path())
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(problem(&error)),
        };
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(problem(&"it is not a regular file"));
        }
        let mut text = Vec::new();
        file.take(MAX_RESULT + 1)
            .read_to_end(&mut text)
            .map_err(|error| problem(&error))?;
        if text.len() as u64 > MAX_RESULT {
            return Err(problem(&"it is larger than 4 MiB"));
        }
        if text.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| problem(&format_args!("it is no JSON object: {error}")))
    }
}
