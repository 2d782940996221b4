//! Checks an output directory: every row, every count, every hash.
//!
//! **Input.** A directory, as a driver left it or as somebody copied it. **Result.** A [`Report`]: what is wrong, each with file, line and
//! field, and what is merely not finished. Files are read as streams, one row in memory at a time. The verifier trusts nothing but the bytes: it
//! recomputes counts, hashes and metrics instead of believing the manifest.

mod entry;
mod file;
mod ids;
mod row;
mod scope;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::OutputError;
use super::manifest::{FileEntry, Manifest, ResultEntry, StepEntry};
use super::stamp::{JobStamp, Stamp};
use super::{layout, whole};

use file::{FileRules, Kind};
use ids::Ids;
pub use scope::Scope;

/// What is to be said of an output without a result.
const UNDECIDED: &str = "the job has no result yet: it was interrupted, has crashed, or still runs; the same job started again goes on where it was";

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Name of the file in the directory.
    pub file: String,
    /// Line, from 1.
    pub line: Option<u64>,
    /// Field of the row or of the manifest.
    pub field: Option<String>,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// Something that is no fault, but good to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Note(pub String);

/// What a finished step holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// The step.
    pub step: u32,
    /// Whether it has all the groups that its job asked for.
    pub complete: bool,
    /// Prompt groups in its file.
    pub groups: u64,
    /// Samples in its file.
    pub samples: u64,
    /// Trained tokens in its file.
    pub trained_tokens: u64,
    /// Samples that were generated and not kept, where they were written.
    pub extra: Option<u64>,
    /// Samples in its file whose response was found to be what their ids spell.
    pub compared: u64,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The directory.
    pub directory: PathBuf,
    /// The job that wrote it.
    pub job: Option<JobStamp>,
    /// How the job ended; none when it has not.
    pub result: Option<ResultEntry>,
    /// Finished steps.
    pub steps: Vec<StepReport>,
    /// What was checked and what was not; none where there was nothing to check.
    pub scope: Option<Scope>,
    /// What is wrong, in the order of files and lines; bounded.
    pub problems: Vec<Problem>,
    /// Problems that were found and are not in the list.
    pub more_problems: u64,
    /// What is not finished.
    pub notes: Vec<Note>,
}

impl Report {
    /// Whether everything is as it should be.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.more_problems == 0
    }
}

/// Problems up to a limit; the rest is counted.
#[derive(Debug, Default)]
struct Problems {
    list: Vec<Problem>,
    more: u64,
    limit: usize,
}

impl Problems {
    fn add(
        &mut self,
        file: &str,
        line: Option<u64>,
        field: Option<&str>,
        problem: impl Into<String>,
    ) {
        if self.list.len() == self.limit {
            self.more += 1;
            return;
        }
        self.list.push(Problem {
            file: file.to_owned(),
            line,
            field: field.map(str::to_owned),
            problem: problem.into(),
        });
    }
}

/// Checks a directory; at most `limit` problems are listed, the rest is counted.
///
/// # Errors
/// The directory cannot be read. What is wrong with its files is in the report.
pub fn verify(directory: &Path, limit: usize) -> Result<Report, OutputError> {
    if !directory.is_dir() {
        let missing = std::io::ErrorKind::NotADirectory.into();
        return Err(OutputError::io("read", directory, missing));
    }
    let mut problems = Problems {
        limit,
        ..Problems::default()
    };
    let manifest = match Manifest::read(directory) {
        Ok(manifest) => manifest,
        Err(OutputError::Broken { problem, .. }) => {
            problems.add(layout::MANIFEST, None, None, problem);
            None
        }
        Err(error) => return Err(error),
    };
    let (mut steps, mut scope) = (Vec::new(), None);
    if let Some(manifest) = &manifest {
        let tokenizer = manifest.tokenizer.as_deref();
        let ids = Ids::of(tokenizer).map_err(|error| OutputError::Broken {
            path: layout::manifest(directory),
            problem: format!("its tokenizer cannot be loaded: {error}"),
        })?;
        steps = verify_steps(directory, manifest, &ids, &mut problems)?;
        let compared = steps.iter().map(|step| step.compared).sum();
        let kept = steps.iter().map(|step| step.samples).sum();
        scope = (!steps.is_empty()).then(|| Scope::of(&ids, tokenizer, compared, kept));
    }
    let mut notes = unfinished(directory, manifest.as_ref(), &mut problems)?;
    let job = match &manifest {
        Some(manifest) => Some(manifest.job.clone()),
        None => Stamp::owner(directory)?,
    };
    let (entries, result) = manifest.map_or((Vec::new(), None), |manifest| {
        (manifest.steps, manifest.result)
    });
    match (&result, &job) {
        (Some(result), _) => entry::check_result(result, &entries, &steps, &mut problems),
        (None, Some(_)) if !steps.is_empty() => notes.push(Note(UNDECIDED.to_owned())),
        (None, Some(_)) if problems.list.is_empty() => problems.add(
            layout::MANIFEST,
            None,
            None,
            format!("is not there: no step is finished; {UNDECIDED}"),
        ),
        (None, None) if problems.list.is_empty() => problems.add(
            layout::MANIFEST,
            None,
            None,
            "is not there, and nothing else of a job: this is no output directory",
        ),
        (None, _) => {}
    }
    Ok(Report {
        directory: directory.to_owned(),
        job,
        result,
        steps,
        scope,
        problems: problems.list,
        more_problems: problems.more,
        notes,
    })
}

fn verify_steps(
    directory: &Path,
    manifest: &Manifest,
    ids: &Ids,
    problems: &mut Problems,
) -> Result<Vec<StepReport>, OutputError> {
    entry::check_numbers(&manifest.steps, problems);
    let mut reports = Vec::new();
    let mut seen = BTreeSet::new();
    for step in &manifest.steps {
        if !seen.insert(step.step) {
            continue;
        }
        reports.push(verify_step(directory, manifest, step, ids, problems)?);
    }
    Ok(reports)
}

fn verify_step(
    directory: &Path,
    manifest: &Manifest,
    step: &StepEntry,
    ids: &Ids,
    problems: &mut Problems,
) -> Result<StepReport, OutputError> {
    let rules = |kind| FileRules {
        kind,
        samples_per_prompt: manifest.samples_per_prompt,
        reward: &manifest.reward,
        ids,
    };
    let kept = file::verify(directory, &step.samples, &rules(Kind::Kept), problems)?;
    entry::compare_file(
        &step.samples,
        &kept,
        &format!("step {}.samples", step.step),
        problems,
    );
    if kept.sha256.is_some() {
        entry::compare_sums(step, &kept.sums, problems);
    }
    entry::check_ledger(step, problems);
    if let Some(extra) = &step.extra {
        let found = file::verify(directory, extra, &rules(Kind::Extra), problems)?;
        entry::compare_file(
            extra,
            &found,
            &format!("step {}.extra", step.step),
            problems,
        );
    }
    Ok(StepReport {
        step: step.step,
        complete: step.complete,
        groups: kept.sums.groups(),
        samples: kept.sums.rows,
        trained_tokens: kept.sums.tokens.trained,
        extra: step.extra.as_ref().map(|extra| extra.rows),
        compared: kept.compared,
    })
}

/// Files that no step of the manifest owns, and parts of steps that are not finished.
fn unfinished(
    directory: &Path,
    manifest: Option<&Manifest>,
    problems: &mut Problems,
) -> Result<Vec<Note>, OutputError> {
    let steps = || manifest.into_iter().flat_map(|manifest| &manifest.steps);
    let owned: BTreeSet<&str> = steps()
        .flat_map(|step| [Some(&step.samples), step.extra.as_ref()])
        .flatten()
        .map(|FileEntry { file, .. }| file.as_str())
        .collect();
    let mut notes = Vec::new();
    for name in whole::list(directory)? {
        let Some(step) = layout::step_of(&name) else {
            continue;
        };
        if owned.contains(name.as_str()) {
            continue;
        }
        if steps().any(|entry| entry.step == step) {
            problems.add(
                &name,
                None,
                None,
                "is not in the manifest, and its step is finished",
            );
        } else {
            notes.push(Note(format!(
                "{name} is not in the manifest: its step was not finished"
            )));
        }
    }
    for step in whole::list(&layout::all_parts(directory))? {
        let parts = whole::list(&layout::all_parts(directory).join(&step))?;
        let groups = parts
            .iter()
            .filter(|name| layout::kept_group(name).is_some())
            .count();
        if groups > 0 {
            notes.push(Note(format!(
                "step {step} is not finished: {groups} kept groups wait in parts"
            )));
        }
    }
    Ok(notes)
}
