//! `manifest.json`: what the files of an output hold.
//!
//! Free of clocks: the same samples give the same manifest. `version` grows when a reader of the version before would misread it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rollout_engine::{JobResult, Tally};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::OutputError;
use super::stamp::JobStamp;
use super::{layout, whole};
use crate::config::TokenizerSource;

/// Version of the manifest that this program writes and reads.
pub const MANIFEST_VERSION: u32 = 1;

/// The name of the built-in tokenizer in a manifest.
pub const BUILTIN_TOKENIZER: &str = "builtin";

/// A tokenizer's name in a manifest. Of a directory only the last part: where it was says nothing elsewhere.
pub fn tokenizer_name(source: &TokenizerSource) -> String {
    match source {
        TokenizerSource::Builtin => BUILTIN_TOKENIZER.to_owned(),
        TokenizerSource::Directory(directory) => {
            let last = directory.file_name().unwrap_or(directory.as_os_str());
            format!("directory {}", last.to_string_lossy())
        }
        TokenizerSource::Engines(_) => "the engines'".to_owned(),
        TokenizerSource::Fetched { digest, .. } => format!("sha256 {digest}"),
    }
}

/// The whole manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`].
    pub version: u32,
    /// The job; its attempt is the one that wrote last.
    pub job: JobStamp,
    /// Samples of each group.
    pub samples_per_prompt: u32,
    /// How samples were scored.
    pub reward: RewardInfo,
    /// Whose token ids the samples have: [`BUILTIN_TOKENIZER`], `directory <name>`, or `sha256 <digest>` of files that came
    /// from the engines. None where the driver had no tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// The finished steps, in order.
    pub steps: Vec<StepEntry>,
    /// How the job ended. A job that was interrupted, has crashed or still runs has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultEntry>,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultEntry {
    /// Why, for people, and whether every step has its groups.
    #[serde(flatten)]
    pub result: JobResult,
    /// How all of its takes ended.
    pub ledger: Tally,
}

/// How samples were scored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RewardInfo {
    /// `None`, `Agent`, `Math`, `Plugin`: with `None` rewards are null.
    pub model: String,
    /// The entry of a reward that is an object; empty when rewards are numbers.
    pub key: String,
}

/// One finished step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEntry {
    /// The step, from 0.
    pub step: u32,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// Whether it has all the groups that the job asked for.
    pub complete: bool,
    /// The kept samples.
    pub samples: FileEntry,
    /// What was generated and not kept, when the job asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<FileEntry>,
    /// Kept samples by status.
    pub status: BTreeMap<String, u64>,
    /// Tokens of the kept samples.
    pub tokens: TokenCounts,
    /// Engine calls of the kept samples, by weight version.
    pub weight_versions: BTreeMap<String, u64>,
    /// How the takes of this step ended: `taken` is the sum of the others.
    pub ledger: Tally,
    /// Metrics under the names of Miles.
    pub metrics: Map<String, Value>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name in the directory.
    pub file: String,
    /// Rows: one sample each.
    pub rows: u64,
    /// Prompt groups.
    pub groups: u64,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its bytes, hexadecimal.
    pub sha256: String,
}

/// Tokens of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Prompts and responses.
    pub total: u64,
    /// Responses, tool text between turns included.
    pub response: u64,
    /// Tokens with a loss mask of 1.
    pub trained: u64,
}

impl Manifest {
    /// Reads the manifest of a directory; `None` when it has none.
    ///
    /// # Errors
    /// It cannot be read, or is of another version.
    pub fn read(directory: &Path) -> Result<Option<Self>, OutputError> {
        let path = layout::manifest(directory);
        let Some(text) = whole::read(&path)? else {
            return Ok(None);
        };
        let broken = |problem: String| OutputError::Broken {
            path: path.clone(),
            problem,
        };
        let value: Value =
            serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        let version = value.get("version").and_then(Value::as_u64);
        if version != Some(u64::from(MANIFEST_VERSION)) {
            let found = version.map_or("no version".to_owned(), |version| {
                format!("version {version}")
            });
            return Err(broken(format!(
                "it has {found}, expected {MANIFEST_VERSION}"
            )));
        }
        let manifest: Self =
            serde_json::from_value(value).map_err(|error| broken(error.to_string()))?;
        manifest.check_names().map_err(broken)?;
        Ok(Some(manifest))
    }

    /// Readers open what the manifest names, so it may name nothing but the files of its steps.
    fn check_names(&self) -> Result<(), String> {
        for entry in &self.steps {
            let step = entry.step;
            let extra = entry.extra.as_ref();
            let names = [
                ("samples", Some(&entry.samples), layout::samples(step)),
                ("extra", extra, layout::extra(step)),
            ];
            for (field, file, expected) in names {
                let Some(FileEntry { file, .. }) = file else {
                    continue;
                };
                if *file != expected {
                    return Err(format!(
                        "step {step}.{field}.file is {file:?}, expected {expected}; no other file is read"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Writes the manifest, whole or not at all.
    pub(super) fn write(
        &self,
        directory: &Path,
        may_appear: impl FnOnce() -> Result<(), OutputError>,
    ) -> Result<(), OutputError> {
        let path = layout::manifest(directory);
        let fill = |sink: &mut whole::Sink| {
            serde_json::to_writer_pretty(&mut *sink, self)
                .map_err(io::Error::from)
                .and_then(|()| sink.write_all(b"\n"))
                .map_err(|source| OutputError::io("write", &path, source))
        };
        whole::write(&path, fill, may_appear).map(|_| ())
    }

    /// The entry of a finished step.
    pub fn step(&self, step: u32) -> Option<&StepEntry> {
        self.steps.iter().find(|entry| entry.step == step)
    }
}

impl FileEntry {
    /// Opens the file; `None` when there is none.
    ///
    /// # Errors
    /// It cannot be read, or is a link, a directory or a device: those lead to something that no driver wrote.
    pub fn open(&self, directory: &Path) -> Result<Option<File>, OutputError> {
        let path = directory.join(&self.file);
        let failed = |source| OutputError::io("read", &path, source);
        match path.symlink_metadata() {
            Ok(found) if found.is_file() => File::open(&path).map(Some).map_err(failed),
            Ok(_) => Err(OutputError::Broken {
                problem: "it is no plain file but a link, a directory or a device; put the file itself there"
                    .to_owned(),
                path,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}
