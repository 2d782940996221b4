//! What the objects of the files carry: rows of data sets and scripts of simulated engines, read by the readers of the programs that will
//! read them, so that they say the same here and there.
//!
//! Rows inside a manifest are read in full, those of a `ConfigMap` of the same files too. Files and volumes are the driver's to read.
//! A field that has an error of its own is left alone: that error comes first.

use rollout_driver::config::{JobSpec, dataset_config};
use rollout_driver::dataset::{Dataset as Rows, DatasetError, RowError};
use serde_json::Value;
use sglang_simulator::Config;
use sglang_simulator::replies::script::Rules;

use crate::api::job::{Dataset, RolloutJobSpec};
use crate::api::manifest::{Document, Finding, Severity, Sources};
use crate::api::meta;
use crate::api::pool::{Engine, SGLangPoolSpec, Script, Simulator};
use crate::api::values::ConfigMapKeyRef;

/// Bad rows that are shown of one data set.
const SHOWN: usize = 10;

/// Everything that is wrong with what objects carry. `known` is what has been found in them before.
pub(super) fn check(sources: &Sources, known: &[Finding]) -> Vec<Finding> {
    let documents = &sources.documents;
    let mut found = Vec::new();
    for document in documents {
        if document.api_version() != Some(meta::API_VERSION) {
            continue;
        }
        let contents = Contents {
            document,
            documents,
        };
        let spec = document.value["spec"].clone();
        match document.kind() {
            Some(meta::POOL_KIND) => {
                if let Ok(spec) = serde_json::from_value::<SGLangPoolSpec>(spec) {
                    found.extend(contents.pool(&spec, "spec"));
                }
            }
            Some(meta::JOB_KIND) => {
                if let Ok(spec) = serde_json::from_value::<RolloutJobSpec>(spec) {
                    found.extend(contents.job(&spec));
                }
            }
            _ => {}
        }
    }
    found.retain(|finding: &Finding| !known.iter().any(|earlier| hides(earlier, finding)));
    found
}

/// Whether an error about an object is the reason of one about what it carries.
fn hides(earlier: &Finding, finding: &Finding) -> bool {
    let same_object = earlier.file == finding.file
        && earlier.document == finding.document
        && earlier.name == finding.name;
    // A data set or a simulator as a whole: its keys decide how rows are read.
    let part = |path: &str| {
        path.split_once(".dataset")
            .map(|(above, _)| format!("{above}.dataset"))
    };
    let place = part(&finding.path).unwrap_or_else(|| finding.path.clone());
    earlier.is_error()
        && same_object
        && (earlier.path.starts_with(&place) || finding.path.starts_with(&earlier.path))
}

/// One object, and the files that it is in.
struct Contents<'a> {
    document: &'a Document,
    documents: &'a [Document],
}

impl Contents<'_> {
    fn job(&self, spec: &RolloutJobSpec) -> Vec<Finding> {
        let mut found = self.rows(spec);
        if let Some(pool) = &spec.pool {
            found.extend(self.pool(pool, "spec.pool"));
        }
        found
    }

    /// Rows by the driver's own rules: keys, labels that the reward can compare, messages for agents.
    fn rows(&self, spec: &RolloutJobSpec) -> Vec<Finding> {
        let at = "spec.dataset";
        let (rows, source) = match self.given_rows(&spec.dataset) {
            Some(Ok(given)) => given,
            Some(Err(problem)) => {
                return vec![self.error(&format!("{at}.configMap"), problem)];
            }
            None => return Vec::new(),
        };
        let mut job = serde_json::to_value(spec).unwrap_or_default();
        job["dataset"]["inline"] = Value::Array(rows);
        // What the driver cannot do yet has been said by then.
        let Ok(config) = JobSpec::read(job).and_then(|job| dataset_config(&job, None)) else {
            return Vec::new();
        };
        let opened = match Rows::open(&config) {
            Ok(opened) => opened,
            Err(error) => {
                let at = match error {
                    DatasetError::Slice { .. } => format!("{at}.slice"),
                    _ => source.path(None),
                };
                let problem = error.to_string().replace("dataset.inline", &source.name());
                return vec![self.error(&at, problem)];
            }
        };
        let report = opened.check(SHOWN);
        let allowed = u64::try_from(spec.rollout.error_budget.bad_rows).unwrap_or(0);
        let severity = if report.bad > allowed {
            Severity::Error
        } else {
            Severity::Warning
        };
        let mut found: Vec<Finding> = report
            .errors
            .iter()
            .map(|error| self.finding(severity, &source.path(Some(error)), source.says(error)))
            .collect();
        let more = report.bad.saturating_sub(report.errors.len() as u64);
        if more > 0 {
            let message = format!("{more} more of its {} rows cannot be used", report.rows);
            found.push(self.finding(severity, &source.path(None), message));
        }
        found
    }

    /// The rows of a data set that are in these files, and where.
    fn given_rows(&self, dataset: &Dataset) -> Option<Result<(Vec<Value>, Source), String>> {
        if let Some(rows) = &dataset.inline {
            let rows = rows.iter().map(|row| Value::Object(row.0.clone()));
            return Some(Ok((rows.collect(), Source::Inline)));
        }
        let reference = dataset.config_map.as_ref()?;
        let text = self.text(reference)?;
        let mut lines = Vec::new();
        let mut rows = Vec::new();
        for (position, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str(line) {
                Ok(row) => rows.push(row),
                Err(error) => {
                    let message = error.to_string();
                    let message = message.split(" at line").next().unwrap_or_default();
                    let (line, column) = (position + 1, error.column());
                    return Some(Err(format!(
                        "{}:{line}:{column}: invalid JSON: {message}; a row is one JSON object on one line",
                        reference.key
                    )));
                }
            }
            lines.push(position + 1);
        }
        let key = reference.key.clone();
        Some(Ok((rows, Source::Lines { key, lines })))
    }

    fn pool(&self, spec: &SGLangPoolSpec, at: &str) -> Vec<Finding> {
        let simulated = spec
            .engine
            .as_ref()
            .and_then(|engine| Some((engine, engine.simulator.as_ref()?)));
        let Some((engine, simulator)) = simulated else {
            return Vec::new();
        };
        let at = format!("{at}.engine.simulator");
        let mut found: Vec<Finding> = self.bounds(engine, simulator, &at).into_iter().collect();
        let script = simulator
            .replies
            .as_ref()
            .and_then(|replies| replies.script.as_ref());
        if let Some(script) = script {
            found.extend(self.script(script, &format!("{at}.replies.script")));
        }
        found
    }

    /// Bounds between fields, by the simulator's own check of its configuration.
    fn bounds(&self, engine: &Engine, simulator: &Simulator, at: &str) -> Option<Finding> {
        let mut config = serde_json::to_value(simulator).unwrap_or_default();
        // What it answers comes from other objects; it is read below.
        config["replies"] = Value::Null;
        let fields = config.as_object_mut()?;
        fields.remove("replies");
        if let Some(length) = engine.context_length {
            fields.insert(
                "server".to_owned(),
                serde_json::json!({"contextLength": length}),
            );
        }
        let problem = match serde_json::from_value::<Config>(config) {
            Ok(config) => config.validate().err()?.to_string(),
            Err(error) => error.to_string(),
        };
        Some(self.error(at, problem))
    }

    fn script(&self, script: &Script, at: &str) -> Option<Finding> {
        let (text, at) = match (&script.inline, &script.config_map_key_ref) {
            (Some(inline), _) => (inline.clone(), format!("{at}.inline")),
            (None, Some(reference)) => (self.text(reference)?, format!("{at}.configMapKeyRef")),
            (None, None) => return None,
        };
        let error = Rules::parse(&text).err()?;
        Some(self.error(&at, of_script(&error.to_string())))
    }

    /// The text of a key of a `ConfigMap` in these files. One that is not there has been told of, or is the cluster's.
    fn text(&self, reference: &ConfigMapKeyRef) -> Option<String> {
        let namespace = |document: &Document| document.namespace().unwrap_or("default").to_owned();
        let map = self.documents.iter().find(|other| {
            other.kind() == Some("ConfigMap")
                && other.name() == Some(&reference.name)
                && namespace(other) == namespace(self.document)
        })?;
        map.value["data"][&reference.key]
            .as_str()
            .map(str::to_owned)
    }

    fn error(&self, at: &str, message: String) -> Finding {
        self.finding(Severity::Error, at, message)
    }

    fn finding(&self, severity: Severity, at: &str, message: String) -> Finding {
        Finding::about(self.document, severity, at, message)
    }
}

/// What the simulator says about a script, on one line and about the field that it is in.
fn of_script(problem: &str) -> String {
    const FORM: &str =
        "a script is a list of rules, each with match, role, afterTurns, and reply or replies";
    let problem = problem.strip_prefix("replies.script").unwrap_or(problem);
    if problem.contains("did not match any variant") {
        return format!(
            "a rule has an unknown key or a value of the wrong type, or this is no list; {FORM}"
        );
    }
    // The picture below a regular expression needs lines; the last one says it in words.
    let words = match problem.split_once("regex parse error:") {
        Some((before, picture)) => {
            let last = picture.lines().last().unwrap_or_default();
            format!("{before}{}", last.trim().trim_start_matches("error: "))
        }
        None => problem.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    match words
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
    {
        Some((rule, words)) => format!("rule {rule} (from 0): {words}; {FORM}"),
        None => format!("{}; {FORM}", words.trim_start_matches(": ")),
    }
}

/// Where rows come from.
enum Source {
    /// `spec.dataset.inline`.
    Inline,
    /// A key of a `ConfigMap`: the lines that are rows.
    Lines { key: String, lines: Vec<usize> },
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::Inline => "dataset.inline".to_owned(),
            Self::Lines { key, .. } => key.clone(),
        }
    }

    /// The field to blame.
    fn path(&self, error: Option<&RowError>) -> String {
        match (self, error) {
            (Self::Inline, Some(error)) => format!("spec.dataset.inline[{}]", row(error)),
            (Self::Inline, None) => "spec.dataset.inline".to_owned(),
            (Self::Lines { .. }, _) => "spec.dataset.configMap".to_owned(),
        }
    }

    fn says(&self, error: &RowError) -> String {
        match self {
            Self::Inline => error.problem.to_string(),
            Self::Lines { key, lines } => {
                let line = lines.get(row(error)).copied().unwrap_or_default();
                format!("{key}:{line}: {}", error.problem)
            }
        }
    }
}

/// The row of an error, from 0: rows are handed over one a line.
fn row(error: &RowError) -> usize {
    usize::try_from(error.location.line)
        .unwrap_or(1)
        .saturating_sub(1)
}
