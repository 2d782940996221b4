//! The output directory of a local run, and what makes a second start resume it.
//!
//! ```text
//! DIR/                samples-<step>.jsonl, manifest.json
//! DIR/.rollout/       job.json    whose directory this is, and the spec it started with
//!                     lock        held while a run is going on
//!                     ledger/  dataset.jsonl  code/  logs/
//!                     agents/  plugins/    where the user's processes work, while a run is going on
//! ```
//!
//! Sockets and secrets live in a short-lived directory of their own ([`super::run_dir`]).

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rollout_driver::output::is_out_of_space;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    run_dir::{self, RunDir},
    secrets::Secrets,
    workplace,
};
use crate::api::job::is_free;

/// A reason not to use a directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkDirError {
    #[error("{path}")]
    Io { path: String, source: io::Error },
    #[error(
        "no space left to write {path}: nothing of it was written; free some, the same command goes on where it was"
    )]
    NoSpace { path: String, source: io::Error },
    #[error("{path} is in use by another run")]
    InUse { path: String },
    #[error("{path} is not readable as the record of a run: {problem}; take another --output")]
    BrokenStamp { path: String, problem: String },
    #[error("{path} is the output of job {owner}, not of {job}; take another --output")]
    OtherJob {
        path: String,
        owner: String,
        job: String,
    },
    #[error("the job in {path} has started with another spec; take another --output, or set back: {}", changes.join("; "))]
    SpecChanged { path: String, changes: Vec<String> },
    #[error("{path} was started with another data set; take another --output")]
    DatasetChanged { path: String },
    #[error(
        "{path} holds files that no run of ours wrote ({example}); take an empty directory for --output"
    )]
    NotEmpty { path: String, example: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct Stamp {
    version: u32,
    job: String,
    namespace: String,
    uid: String,
    attempt: u32,
    spec: Value,
    dataset_sha256: String,
    /// Those of this run and of killed ones, until they are gone.
    #[serde(default)]
    run_directories: Vec<PathBuf>,
}

/// The job that a directory is for.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) spec: &'a Value,
    /// SHA-256 of the data set, in hex.
    pub(super) dataset_sha256: &'a str,
}

/// A locked output directory.
#[derive(Debug)]
pub(super) struct WorkDir {
    /// Where samples go.
    pub(super) output: PathBuf,
    /// `DIR/.rollout`.
    pub(super) state: PathBuf,
    /// Sockets and secrets; removed when the run ends, or by the next one.
    pub(super) run: RunDir,
    /// Stays the same for all starts.
    pub(super) uid: String,
    /// Counts the starts, from 1.
    pub(super) attempt: u32,
    /// What killed runs left and what still was in use at the start.
    left: Vec<PathBuf>,
    _lock: File,
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        clear_workplaces(&self.state);
        run_dir::remove_stale(std::mem::take(&mut self.left));
    }
}

impl WorkDir {
    /// Opens or resumes a directory, and counts the attempt.
    pub(super) fn open(
        output: &Path,
        job: &Job<'_>,
        new_uid: impl FnOnce() -> String,
    ) -> Result<Self, WorkDirError> {
        let state = output.join(".rollout");
        if !state.exists() {
            refuse_foreign_files(output)?;
        }
        fs::create_dir_all(&state).map_err(at(&state))?;
        let output = output.canonicalize().map_err(at(output))?;
        let state = output.join(".rollout");
        let lock_path = state.join("lock");
        let lock = File::create(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(WorkDirError::InUse {
                    path: output.display().to_string(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(at(&lock_path)(source)),
        }
        let stamp_path = state.join("job.json");
        let mut stamp = match read_stamp(&stamp_path)? {
            Some(stamp) => {
                check(&output, &stamp, job)?;
                stamp
            }
            None => Stamp {
                version: 1,
                job: job.name.to_owned(),
                namespace: job.namespace.to_owned(),
                uid: new_uid(),
                attempt: 0,
                spec: job.spec.clone(),
                dataset_sha256: job.dataset_sha256.to_owned(),
                run_directories: Vec::new(),
            },
        };
        clear_workplaces(&state);
        let run = RunDir::new_path(&Secrets::random_uid()).map_err(at(&state))?;
        let left = run_dir::remove_stale(std::mem::take(&mut stamp.run_directories));
        stamp.run_directories.clone_from(&left);
        stamp.run_directories.push(run.clone());
        stamp.attempt += 1;
        stamp.spec = job.spec.clone();
        write_whole(
            &stamp_path,
            &serde_json::to_vec_pretty(&stamp).unwrap_or_default(),
        )?;
        let run = RunDir::create(run.clone()).map_err(at(&run))?;
        Ok(Self {
            output,
            state,
            run,
            uid: stamp.uid,
            attempt: stamp.attempt,
            left,
            _lock: lock,
        })
    }

    /// Writes a file below `.rollout`, whole or not at all.
    pub(super) fn write(&self, relative: &str, content: &[u8]) -> Result<PathBuf, WorkDirError> {
        let path = self.state.join(relative);
        write_whole(&path, content)?;
        Ok(path)
    }

    /// A directory below `.rollout`, made if it is not there.
    pub(super) fn directory(&self, relative: &str) -> Result<PathBuf, WorkDirError> {
        let path = self.state.join(relative);
        fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(path)
    }
}

/// A path as a person would type it: relative when it is below the current directory.
pub(super) fn shown(path: &Path) -> std::path::Display<'_> {
    let here = std::env::current_dir().unwrap_or_default();
    match path.strip_prefix(&here) {
        Ok(below) if !below.as_os_str().is_empty() => below.display(),
        _ => path.display(),
    }
}

/// Removes what the user's processes wrote beside the output. They are gone, or about to be: what cannot be removed stays until the next start.
fn clear_workplaces(state: &Path) {
    for name in [workplace::AGENTS, workplace::PLUGINS] {
        let directory = state.join(name);
        if let Err(error) = fs::remove_dir_all(&directory)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(directory = %directory.display(), %error, "what agents or plug-ins wrote cannot be removed");
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> WorkDirError {
    let path = path.display().to_string();
    move |source| {
        if is_out_of_space(&source) {
            WorkDirError::NoSpace { path, source }
        } else {
            WorkDirError::Io { path, source }
        }
    }
}

fn refuse_foreign_files(output: &Path) -> Result<(), WorkDirError> {
    let Ok(mut entries) = fs::read_dir(output) else {
        return Ok(());
    };
    match entries.next() {
        Some(Ok(entry)) => {
            let example = entry.file_name().to_string_lossy().into_owned();
            Err(WorkDirError::NotEmpty {
                path: output.display().to_string(),
                example,
            })
        }
        _ => Ok(()),
    }
}

fn read_stamp(path: &Path) -> Result<Option<Stamp>, WorkDirError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(path)(error)),
    };
    let broken = |problem: String| WorkDirError::BrokenStamp {
        path: path.display().to_string(),
        problem,
    };
    let stamp: Stamp = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
    if stamp.version != 1 {
        return Err(broken(format!("it has version {}", stamp.version)));
    }
    Ok(Some(stamp))
}

fn check(output: &Path, stamp: &Stamp, job: &Job<'_>) -> Result<(), WorkDirError> {
    let path = output.display().to_string();
    if (stamp.job.as_str(), stamp.namespace.as_str()) != (job.name, job.namespace) {
        let name = |namespace: &str, name: &str| format!("{namespace}/{name}");
        return Err(WorkDirError::OtherJob {
            path,
            owner: name(&stamp.namespace, &stamp.job),
            job: name(job.namespace, job.name),
        });
    }
    let mut changes = Vec::new();
    frozen_changes("", &stamp.spec, job.spec, &mut changes);
    if !changes.is_empty() {
        return Err(WorkDirError::SpecChanged { path, changes });
    }
    if stamp.dataset_sha256 != job.dataset_sha256 {
        return Err(WorkDirError::DatasetChanged { path });
    }
    Ok(())
}

/// Frozen fields that differ, with both values. The spec itself is the empty field.
fn frozen_changes(field: &str, old: &Value, new: &Value, changes: &mut Vec<String>) {
    if old == new || is_free(field) {
        return;
    }
    if let (Value::Object(old_members), Value::Object(new_members)) = (old, new) {
        let names = old_members.keys().chain(
            new_members
                .keys()
                .filter(|name| !old_members.contains_key(*name)),
        );
        for name in names {
            let member = |members: &serde_json::Map<String, Value>| {
                members.get(name).cloned().unwrap_or(Value::Null)
            };
            frozen_changes(
                &below(field, name),
                &member(old_members),
                &member(new_members),
                changes,
            );
        }
    } else {
        let path = below("spec", field);
        changes.push(format!(
            "{} was {old}, is {new}",
            path.trim_end_matches('.')
        ));
    }
}

fn below(field: &str, name: &str) -> String {
    if field.is_empty() {
        return name.to_owned();
    }
    format!("{field}.{name}")
}

fn write_whole(path: &Path, content: &[u8]) -> Result<(), WorkDirError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(at(parent))?;
    }
    let temporary = path.with_extension("tmp");
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // A part of a file that takes up what space there is; it is replaced anyway when it cannot be removed.
        drop(fs::remove_file(&temporary));
        at(path)(error)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::job::fields_by_freedom;

    fn open(
        output: &Path,
        name: &str,
        spec: &Value,
        dataset_sha256: &str,
    ) -> Result<WorkDir, WorkDirError> {
        WorkDir::open(
            output,
            &Job {
                name,
                namespace: "default",
                spec,
                dataset_sha256,
            },
            || "uid-1".to_owned(),
        )
    }

    #[test]
    fn a_second_start_resumes_and_counts() {
        let home = tempfile::tempdir().unwrap();
        let output = home.path().join("out");
        let spec = json!({"rollout": {"batchSize": 4}});
        assert_eq!(open(&output, "a", &spec, "x").unwrap().attempt, 1);
        let again = open(
            &output,
            "a",
            &json!({"rollout": {"batchSize": 4}, "suspend": true}),
            "x",
        )
        .unwrap();
        assert_eq!((again.attempt, again.uid.as_str()), (2, "uid-1"));
    }

    /// A spec in which one field has a value.
    fn with(field: &str, value: u32) -> Value {
        let members = field.rsplit('.');
        members.fold(json!(value), |inner, member| json!({ member: inner }))
    }

    #[test]
    fn what_may_change_on_a_cluster_may_change_here_and_nothing_else() {
        let (free, frozen) = fields_by_freedom();
        let verdict = |field: &str| {
            let home = tempfile::tempdir().unwrap();
            drop(open(home.path(), "a", &with(field, 1), "x").unwrap());
            let again = open(home.path(), "a", &with(field, 2), "x");
            again.map(drop).map_err(|error| error.to_string())
        };
        for field in free {
            assert_eq!(verdict(&field), Ok(()), "{field}");
        }
        for field in frozen {
            let said = verdict(&field).unwrap_err();
            let change = format!("set back: spec.{field} was 1, is 2");
            assert!(said.ends_with(&change), "{field}: {said}");
        }
    }

    #[test]
    fn a_running_job_keeps_its_directory() {
        let home = tempfile::tempdir().unwrap();
        let first = open(home.path(), "a", &json!({}), "x").unwrap();
        let second = open(home.path(), "a", &json!({}), "x").unwrap_err();
        assert!(
            second.to_string().ends_with("is in use by another run"),
            "{second}"
        );
        drop(first);
        open(home.path(), "a", &json!({}), "x").unwrap();
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let output = home.path().join("out");
        let spec = json!({"rollout": {"batchSize": 4}});
        drop(open(&output, "a", &spec, "x").unwrap());
        let text = |result: Result<WorkDir, WorkDirError>| result.unwrap_err().to_string();
        assert!(
            text(open(&output, "b", &spec, "x"))
                .contains("is the output of job default/a, not of default/b")
        );
        let changed = text(open(
            &output,
            "a",
            &json!({"rollout": {"batchSize": 8}}),
            "x",
        ));
        assert!(
            changed.ends_with("spec.rollout.batchSize was 4, is 8"),
            "{changed}"
        );
        assert!(text(open(&output, "a", &spec, "y")).contains("another data set"));
        fs::write(output.join(".rollout/job.json"), "{").unwrap();
        assert!(
            text(open(&output, "a", &spec, "x")).contains("not readable as the record of a run")
        );
        fs::write(home.path().join("thesis.tex"), "").unwrap();
        assert!(text(open(home.path(), "a", &spec, "x")).contains("no run of ours wrote"));
    }
}
