//! What the objects of the files carry: rows of data sets and scripts of simulated engines, read by the readers of the programs that will
//! read them, so that they say the same here and there.
//!
//! Rows inside a manifest are read in full, those of a `ConfigMap` of the same files too: bad ones of these are named by line and column in
//! the text of their key. Files and volumes are the driver's to read.
//! A field that has an error of its own is left alone: that error comes first.

use std::path::Path;

use rollout_driver::config::{JobSpec, dataset_config};
use rollout_driver::dataset::{Dataset as Rows, DatasetConfig, DatasetError, RowError, Source};
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
        let Some(holder) = self.rows_in_files(&spec.dataset) else {
            return Vec::new();
        };
        // What the driver cannot do yet has been said by then.
        let Some(config) = holder.config(spec) else {
            return Vec::new();
        };
        let opened = match Rows::open(&config) {
            Ok(opened) => opened,
            Err(error) => {
                let at = match error {
                    DatasetError::Slice { .. } => "spec.dataset.slice".to_owned(),
                    _ => holder.path(None),
                };
                return vec![self.error(&at, error.to_string())];
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
            .map(|error| self.finding(severity, &holder.path(Some(error)), holder.says(error)))
            .collect();
        let more = report.bad.saturating_sub(report.errors.len() as u64);
        if more > 0 {
            let message = format!("{more} more of its {} rows cannot be used", report.rows);
            found.push(self.finding(severity, &holder.path(None), message));
        }
        found
    }

    /// Where the rows of a data set are, if that is in these files.
    fn rows_in_files(&self, dataset: &Dataset) -> Option<Holder> {
        if dataset.inline.is_some() {
            return Some(Holder::Inline);
        }
        let reference = dataset.config_map.as_ref()?;
        Some(Holder::ConfigMap {
            key: reference.key.clone(),
            text: self.text(reference)?,
        })
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

/// What has the rows.
enum Holder {
    /// `spec.dataset.inline`.
    Inline,
    /// A key of a `ConfigMap`.
    ConfigMap { key: String, text: String },
}

impl Holder {
    /// What the driver would make of it.
    fn config(&self, spec: &RolloutJobSpec) -> Option<DatasetConfig> {
        let job = JobSpec::read(serde_json::to_value(spec).ok()?).ok()?;
        match self {
            Self::Inline => dataset_config(&job, None).ok(),
            Self::ConfigMap { key, text } => {
                let config = dataset_config(&job, Some(Path::new(key))).ok()?;
                let source = Source::Text {
                    name: key.clone(),
                    text: text.clone(),
                };
                Some(DatasetConfig { source, ..config })
            }
        }
    }

    /// The field to blame.
    fn path(&self, error: Option<&RowError>) -> String {
        match (self, error) {
            // Rows of a manifest are counted from 1 where lines are meant.
            (Self::Inline, Some(error)) => {
                format!("spec.dataset.inline[{}]", error.location.line - 1)
            }
            (Self::Inline, None) => "spec.dataset.inline".to_owned(),
            (Self::ConfigMap { .. }, _) => "spec.dataset.configMap".to_owned(),
        }
    }

    fn says(&self, error: &RowError) -> String {
        match self {
            Self::Inline => error.problem.to_string(),
            Self::ConfigMap { .. } => error.to_string(),
        }
    }
}
