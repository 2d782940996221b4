//! What a driver says: its `/status` while it runs, its last word when it ended (docs/protocol.md section 5).
//!
//! Guarantee: of a document of a later version only what every version has is read; a field that cannot be read takes nothing else with it.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::api::job::{Failure, Progress, TeardownStatus, WrittenOutput};

/// The version of both documents that this operator reads whole.
const VERSION: u64 = 1;
/// Failures that a status lists.
pub(super) const MOST_FAILURES: usize = 16;

/// Sessions of a job that want an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Demand {
    /// Sessions that no Pod has.
    pub waiting: u64,
    /// Sessions that Pods have.
    pub assigned: u64,
    /// Pods that wait for a session.
    pub idle_claims: u64,
    /// There will be no more work.
    pub closed: bool,
}

/// How a driver ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// A stable word: a reason of the API, `interrupted`, or `crashed`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Whether the job has its samples.
    pub success: bool,
}

impl Outcome {
    /// Whether the job is over: nobody goes on with it.
    pub fn is_decided(&self) -> bool {
        !matches!(self.reason.as_str(), "interrupted" | "crashed" | "")
    }
}

/// What the driver does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doing {
    /// It generates.
    #[default]
    Generating,
    /// It climbs the ladder.
    TearingDown,
    /// It is about to end.
    Done,
}

/// What a driver that runs says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it does.
    pub doing: Doing,
    /// Pods that are wanted; none: nobody knows, so that they stay as they are.
    pub demand: Option<Demand>,
    /// What goes into the job's status.
    pub facts: Facts,
}

/// What goes into a job's status as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// How the job ended.
    pub outcome: Option<Outcome>,
    /// Groups, sessions and tokens.
    pub progress: Option<Progress>,
    /// What the ladder did.
    pub teardown: Option<TeardownStatus>,
    /// What was written; only a last word has it.
    pub output: Option<WrittenOutput>,
    /// Failures by reason.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Reads `/status`.
    pub fn read(status: &Value) -> Self {
        let doing = match status["phase"].as_str() {
            Some("TearingDown") => Doing::TearingDown,
            Some("Done") => Doing::Done,
            _ => Doing::Generating,
        };
        Self {
            doing,
            demand: is_known(status).then(|| part(&status["demand"])).flatten(),
            facts: Facts::read(status),
        }
    }
}

impl Facts {
    /// Reads a last word's text; none: it is not one.
    pub fn of_last_word(text: &str) -> Option<Self> {
        let word: Value = serde_json::from_str(text).ok()?;
        word.is_object().then(|| Self::read(&word))
    }

    fn read(document: &Value) -> Self {
        let outcome = part(&document["result"]);
        if !is_known(document) {
            return Self {
                outcome,
                ..Self::default()
            };
        }
        let failures = document["recentFailures"].as_array();
        let failures = failures.into_iter().flatten().filter_map(part);
        Self {
            outcome,
            progress: fields(&document["progress"]),
            teardown: fields(&document["teardown"]),
            output: fields(&document["output"]),
            failures: failures.take(MOST_FAILURES).collect(),
        }
    }
}

fn is_known(document: &Value) -> bool {
    document["version"]
        .as_u64()
        .is_none_or(|version| version <= VERSION)
}

/// Read whole or not at all: of a demand, half is as good as none.
fn part<T: DeserializeOwned>(value: &Value) -> Option<T> {
    if value.is_null() {
        return None;
    }
    T::deserialize(value).ok()
}

/// Read field by field, where every field may be missing: a later driver may have words, or nulls, that this version does not know.
fn fields<T: DeserializeOwned>(value: &Value) -> Option<T> {
    if !value.is_object() {
        return None;
    }
    let readable = readable(value, &|value| T::deserialize(value).is_ok())?;
    T::deserialize(&readable).ok()
}

/// A value without the members, at any depth, that do not fit.
fn readable(value: &Value, fits: &dyn Fn(&Value) -> bool) -> Option<Value> {
    if fits(value) {
        return Some(value.clone());
    }
    let members = value.as_object()?.iter().filter_map(|(name, member)| {
        let fits = |member: &Value| fits(&json!({name: member}));
        Some((name.clone(), readable(member, &fits)?))
    });
    Some(Value::Object(members.collect::<Map<_, _>>()))
}
