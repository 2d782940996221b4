//! Writes the output of a job: kept groups at once, files at the end of a step.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rollout_engine::Tally;
use rollout_session::Sample;
use serde_json::{Map, Value};

use super::error::OutputError;
use super::manifest::{FileEntry, MANIFEST_VERSION, Manifest, ResultEntry, RewardInfo, StepEntry};
use super::metrics::Sums;
use super::stamp::{JobStamp, Stamp};
use super::{layout, rows, whole};

/// What an output is told at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputConfig {
    /// Where it goes; made when it is not there.
    pub directory: PathBuf,
    /// Whose it is.
    pub job: JobStamp,
    /// Samples of each group.
    pub samples_per_prompt: u32,
    /// How samples are scored.
    pub reward: RewardInfo,
    /// Whose token ids the samples have, as [`Manifest::tokenizer`] says it.
    pub tokenizer: Option<String>,
    /// Write what is generated and not kept, too.
    pub include_all: bool,
    /// Digest of a data set that was fetched: its samples do not go with those of another.
    pub dataset: Option<String>,
}

/// A group that was kept, as a part holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptPart {
    /// The group.
    pub group: u64,
    /// Its rows.
    pub rows: Vec<u8>,
    /// The samples in them.
    pub samples: Vec<Sample>,
}

/// What kept groups a crash left in a step.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Groups that are whole, by group.
    pub groups: Vec<KeptPart>,
    /// Parts that cannot be used: their groups have to be taken again.
    pub broken: Vec<OutputError>,
}

/// The end of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepSummary {
    /// The step.
    pub step: u32,
    /// Whether it has all its groups.
    pub complete: bool,
    /// The kept groups. Parts of other groups are not part of the output.
    pub kept: Vec<u64>,
    /// How its takes ended.
    pub ledger: Tally,
    /// Metrics that are no property of samples, under their full names (`perf/rollout_time`).
    pub metrics: Map<String, Value>,
}

/// Why a group was generated and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotKept<'a> {
    /// The take that ended.
    pub take: u64,
    /// The state of its end: `filtered`, `recycled`, `failed`, `lost`.
    pub state: &'a str,
    /// The reason of its end.
    pub reason: &'a str,
}

/// The output directory of a job. All calls block on the file system; they may come from several threads.
#[derive(Debug)]
pub struct Writer {
    config: OutputConfig,
    stamp: Stamp,
    manifest: Mutex<Manifest>,
}

impl Writer {
    /// Claims a directory, and removes what a crash left half-written.
    ///
    /// # Errors
    /// The directory is of another job or of a later attempt, or cannot be written.
    pub fn open(config: OutputConfig) -> Result<Self, OutputError> {
        let directory = &config.directory;
        whole::create_directory(directory)?;
        whole::create_directory(&layout::state(directory))?;
        let stamp = Stamp::claim(
            directory,
            &config.job,
            config.dataset.clone(),
            format!("{:016x}", rand::random::<u64>()),
        )?;
        for place in [directory.clone(), layout::state(directory)] {
            whole::remove_leftovers(&place)?;
        }
        for step in whole::list(&layout::all_parts(directory))? {
            whole::remove_leftovers(&layout::all_parts(directory).join(step))?;
        }
        let manifest = Manifest::read(directory)?.unwrap_or_else(|| Manifest {
            version: MANIFEST_VERSION,
            job: config.job.clone(),
            samples_per_prompt: config.samples_per_prompt,
            reward: config.reward.clone(),
            tokenizer: config.tokenizer.clone(),
            steps: Vec::new(),
            result: None,
        });
        Ok(Self {
            stamp,
            manifest: Mutex::new(manifest),
            config,
        })
    }

    /// Where the output is.
    pub fn directory(&self) -> &Path {
        &self.config.directory
    }

    /// The entry of a step that is finished already.
    pub fn finished(&self, step: u32) -> Option<StepEntry> {
        self.manifest.lock().step(step).cloned()
    }

    /// How the job ended, if it has.
    pub fn result(&self) -> Option<ResultEntry> {
        self.manifest.lock().result.clone()
    }

    pub(super) fn manifest(&self) -> Manifest {
        self.manifest.lock().clone()
    }

    pub(super) fn still_mine(&self) -> Result<(), OutputError> {
        self.stamp.still_mine()
    }

    /// Files and samples of all finished steps.
    pub fn totals(&self) -> (u64, u64) {
        let manifest = self.manifest.lock();
        let files = manifest
            .steps
            .iter()
            .flat_map(|step| [Some(&step.samples), step.extra.as_ref()])
            .flatten();
        (
            files.count() as u64,
            manifest.steps.iter().map(|step| step.samples.rows).sum(),
        )
    }

    /// Makes a kept group durable; `rows` are those of [`super::encode`]. The same group again takes the place of the first.
    ///
    /// # Errors
    /// See [`OutputError`]. The part is whole or absent.
    pub fn keep(&self, step: u32, group: u64, rows: &[u8]) -> Result<(), OutputError> {
        self.write_part(step, &layout::kept_part(group), rows)
    }

    /// Makes a group durable that was generated and not kept. Does nothing unless the job asked for all samples.
    ///
    /// # Errors
    /// As [`Writer::keep`].
    pub fn not_kept(
        &self,
        step: u32,
        group: u64,
        end: NotKept<'_>,
        samples: &[Sample],
    ) -> Result<(), OutputError> {
        if !self.config.include_all || samples.is_empty() {
            return Ok(());
        }
        let rows = rows::encode_not_kept(samples, end.state, end.reason)?;
        let name = layout::extra_part(group, self.config.job.attempt, end.take);
        self.write_part(step, &name, &rows)
    }

    fn write_part(&self, step: u32, name: &str, rows: &[u8]) -> Result<(), OutputError> {
        let directory = layout::parts(self.directory(), step);
        whole::create_directory(&directory)?;
        let path = directory.join(name);
        let fill = |sink: &mut whole::Sink| {
            sink.write_all(rows)
                .map_err(|source| OutputError::io("write", &path, source))
        };
        whole::write(&path, fill, || self.stamp.still_mine()).map(|_| ())
    }

    /// The kept groups of a step that is not finished: what an attempt without the ledger of the last one starts from.
    ///
    /// # Errors
    /// The parts cannot be listed. A part that cannot be used is an entry of the result instead.
    pub fn recover(&self, step: u32) -> Result<Recovered, OutputError> {
        let directory = layout::parts(self.directory(), step);
        let mut recovered = Recovered::default();
        for name in whole::list(&directory)? {
            let Some(group) = layout::kept_group(&name) else {
                continue;
            };
            let path = directory.join(&name);
            match read_part(&path) {
                Ok((rows, samples)) => recovered.groups.push(KeptPart {
                    group,
                    rows,
                    samples,
                }),
                Err(error) => recovered.broken.push(error),
            }
        }
        recovered.groups.sort_unstable_by_key(|part| part.group);
        Ok(recovered)
    }

    /// Writes the files of a step and its entry in the manifest, then forgets its parts. Again after a crash at any point: the
    /// same content.
    ///
    /// # Errors
    /// The kept groups are not as many as the ledger counts, one has no part, samples are not in order, or the file system fails. The step is then not in the manifest, and its
    /// parts are still there.
    pub fn finish_step(&self, summary: &StepSummary) -> Result<StepEntry, OutputError> {
        let step = summary.step;
        let mut manifest = self.manifest.lock();
        if let Some(entry) = manifest.step(step).cloned() {
            self.remove_parts(step)?;
            return Ok(entry);
        }
        let (counted, listed) = (summary.ledger.kept, summary.kept.len() as u64);
        if counted != listed {
            return Err(OutputError::WrongCount {
                step,
                counted,
                listed,
            });
        }
        let (samples, sums) = self.write_samples(summary)?;
        let extra = if self.config.include_all {
            self.write_extra(step)?
        } else {
            None
        };
        let mut metrics = sums.metrics(step);
        metrics.extend(summary.metrics.clone());
        for (reason, count) in &summary.ledger.filtered {
            metrics.insert(
                format!("rollout/dynamic_filter/drop_{reason}"),
                (*count).into(),
            );
        }
        let entry = StepEntry {
            step,
            attempt: self.config.job.attempt,
            complete: summary.complete,
            samples,
            extra,
            status: sums.status,
            tokens: sums.tokens,
            weight_versions: sums.weight_versions,
            ledger: summary.ledger.clone(),
            metrics,
        };
        let mut next = manifest.clone();
        next.job = self.stamp.job().clone();
        next.steps.push(entry.clone());
        next.result = None;
        next.steps.sort_unstable_by_key(|entry| entry.step);
        next.write(self.directory(), || self.stamp.still_mine())?;
        *manifest = next;
        self.remove_parts(step)?;
        Ok(entry)
    }

    /// Says how the job ended. Again: the same. A ledger that was begun anew beside finished steps does not know their takes: the
    /// entries of the steps do, and their sum takes its place.
    ///
    /// # Errors
    /// The manifest cannot be written; it is then as it was.
    pub fn decide(&self, mut result: ResultEntry) -> Result<(), OutputError> {
        let mut manifest = self.manifest.lock();
        let mut of_steps = Tally::default();
        for entry in &manifest.steps {
            of_steps.add(&entry.ledger);
        }
        if result.ledger.kept < of_steps.kept {
            result.ledger = of_steps;
        }
        if manifest.result.as_ref() == Some(&result) {
            return Ok(());
        }
        let mut next = manifest.clone();
        next.job = self.stamp.job().clone();
        next.result = Some(result);
        next.write(self.directory(), || self.still_mine())?;
        *manifest = next;
        Ok(())
    }

    fn write_samples(&self, summary: &StepSummary) -> Result<(FileEntry, Sums), OutputError> {
        let directory = layout::parts(self.directory(), summary.step);
        let mut parts = Vec::with_capacity(summary.kept.len());
        for group in &summary.kept {
            let path = directory.join(layout::kept_part(*group));
            let index = match fs::read(&path) {
                Ok(rows) => rows::first_index(&rows),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(OutputError::MissingGroup {
                        step: summary.step,
                        group: *group,
                    });
                }
                Err(error) => return Err(OutputError::io("read", &path, error)),
            };
            parts.push((index, path));
        }
        parts.sort_unstable();
        let paths: Vec<_> = parts.into_iter().map(|(_, path)| path).collect();
        self.concatenate(&layout::samples(summary.step), &paths)
    }

    fn write_extra(&self, step: u32) -> Result<Option<FileEntry>, OutputError> {
        let directory = layout::parts(self.directory(), step);
        let names = whole::list(&directory)?;
        let paths: Vec<_> = names
            .iter()
            .filter(|name| layout::is_extra_part(name))
            .map(|name| directory.join(name))
            .collect();
        if paths.is_empty() {
            return Ok(None);
        }
        self.concatenate(&layout::extra(step), &paths)
            .map(|(entry, _)| Some(entry))
    }

    /// One file of all rows of the parts, in their order. One part at a time is in memory.
    fn concatenate(&self, name: &str, parts: &[PathBuf]) -> Result<(FileEntry, Sums), OutputError> {
        let path = self.directory().join(name);
        let fill = |sink: &mut whole::Sink| {
            let mut sums = Sums::new(&self.config.reward.key);
            for part in parts {
                let (rows, samples) = read_part(part)?;
                for sample in &samples {
                    sums.add(sample);
                }
                sink.write_all(&rows)
                    .map_err(|source| OutputError::io("write", &path, source))?;
            }
            Ok(sums)
        };
        let (sums, written) = whole::write(&path, fill, || self.stamp.still_mine())?;
        let entry = FileEntry {
            file: name.to_owned(),
            rows: sums.rows,
            groups: sums.groups(),
            bytes: written.bytes,
            sha256: written.sha256,
        };
        Ok((entry, sums))
    }

    fn remove_parts(&self, step: u32) -> Result<(), OutputError> {
        self.stamp.still_mine()?;
        let directory = layout::parts(self.directory(), step);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(OutputError::io("remove", &directory, error))
            }
            _ => Ok(()),
        }
    }
}

fn read_part(path: &Path) -> Result<(Vec<u8>, Vec<Sample>), OutputError> {
    let rows = fs::read(path).map_err(|source| OutputError::io("read", path, source))?;
    let broken = |problem: String| OutputError::Broken {
        path: path.to_owned(),
        problem,
    };
    let samples =
        rows::decode(&rows).map_err(|(line, problem)| broken(format!("line {line}: {problem}")))?;
    if samples.is_empty() {
        return Err(broken("it has no rows".to_owned()));
    }
    Ok((rows, samples))
}
