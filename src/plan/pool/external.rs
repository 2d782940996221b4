//! External engines: what their answers say about the pool.
//!
//! An engine takes work when it answers, serves the pool's model, and can do what the router asks of it. One that answers and cannot is told
//! in `Stalled`: no waiting helps. One that does not answer may still start.

use serde::{Deserialize, Serialize};

use super::{MOST_ENGINES, Trouble, Workload};
use crate::api::conditions::reasons;
use crate::api::pool::{EngineStatus, Model, SGLangPoolSpec};

/// Engines that a message names.
const MOST_NAMED: usize = 4;

/// The version of weights that nobody has updated (SGLang's `--weight-version`).
const AS_LAUNCHED: &str = "default";

/// What is known of a pool's external engines. It crosses the wire as JSON (docs/protocol.md section 7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Survey {
    /// What engines are to be asked with and is not there: nobody asks them.
    pub missing: Option<String>,
    /// Why their list is not known, or is an old one.
    pub trouble: Option<String>,
    /// By their URLs.
    pub engines: Vec<ExternalEngine>,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalEngine {
    /// Base URL.
    pub url: String,
    /// What it answered last.
    pub answer: Answer,
}

/// What an engine answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was not asked yet.
    #[default]
    Unasked,
    /// None, and why.
    Silent(String),
    /// It serves; what it can do is not known, and why.
    Untested(Facts, String),
    /// It serves, and was tested.
    Tested(Facts, Abilities),
}

/// What an engine says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Where its weights came from.
    pub model: Option<String>,
    /// What clients call its model.
    pub served_name: Option<String>,
    /// Version of its weights.
    pub weight_version: Option<String>,
    /// Whether its generation is paused.
    pub paused: bool,
}

/// What a test of an engine showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Abilities {
    /// Version of SGLang.
    pub version: Option<String>,
    /// What the router needs and does not get, in words.
    pub lacks: Vec<String>,
    /// What only some jobs need and do not get.
    pub remark: Option<String>,
}

impl ExternalEngine {
    /// One that nobody has asked.
    pub fn unasked(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            answer: Answer::Unasked,
        }
    }
}

impl Survey {
    /// The survey in the eyes of a spec.
    pub(super) fn of(mut self, spec: &SGLangPoolSpec) -> Judged {
        self.engines.sort_by(|left, right| left.url.cmp(&right.url));
        Judged {
            missing: self.missing,
            trouble: self.trouble,
            engines: self
                .engines
                .into_iter()
                .map(|engine| JudgedEngine {
                    faults: faults(&engine.answer, spec.model.as_ref()),
                    engine,
                })
                .collect(),
        }
    }
}

/// A survey with what is wrong with each engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    missing: Option<String>,
    trouble: Option<String>,
    engines: Vec<JudgedEngine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct JudgedEngine {
    engine: ExternalEngine,
    faults: Vec<String>,
}

/// Why an engine that serves is no engine of the pool.
fn faults(answer: &Answer, model: Option<&Model>) -> Vec<String> {
    let Answer::Tested(facts, abilities) = answer else {
        return Vec::new();
    };
    let mut faults = abilities.lacks.clone();
    faults.extend(model.and_then(|model| other_model(facts, model)));
    faults
}

/// Names say nothing once weights were updated: SGLang then calls model and served model as the checkpoint.
fn other_model(facts: &Facts, wanted: &Model) -> Option<String> {
    if facts.weight_version.as_deref() != Some(AS_LAUNCHED) {
        return None;
    }
    let names = [facts.served_name.as_ref(), facts.model.as_ref()];
    let known: Vec<&String> = names.into_iter().flatten().collect();
    let is_it = |name: &String| known.contains(&name);
    if known.is_empty() || is_it(&wanted.path) || wanted.served_name.as_ref().is_some_and(is_it) {
        return None;
    }
    let name = known.first().map_or("", |name| name.as_str());
    Some(format!("it serves {name}, spec.model is {}", wanted.path))
}

impl JudgedEngine {
    fn takes_work(&self) -> bool {
        match self.engine.answer {
            Answer::Tested(..) => self.faults.is_empty(),
            Answer::Unasked | Answer::Silent(_) | Answer::Untested(..) => false,
        }
    }

    fn facts(&self) -> Option<&Facts> {
        match &self.engine.answer {
            Answer::Untested(facts, _) | Answer::Tested(facts, _) => Some(facts),
            Answer::Unasked | Answer::Silent(_) => None,
        }
    }

    fn version(&self) -> Option<&String> {
        match &self.engine.answer {
            Answer::Tested(_, abilities) => abilities.version.as_ref(),
            _ => None,
        }
    }

    fn fault(&self) -> Option<String> {
        if self.faults.is_empty() {
            return None;
        }
        let version = self.version();
        let version = version.map_or(String::new(), |version| format!(" (SGLang {version})"));
        let faults = self.faults.join(", ");
        Some(format!("{}{version}: {faults}", self.engine.url))
    }

    /// Why it takes no work yet, or what it cannot do for some jobs.
    fn remark(&self) -> Option<String> {
        let why = match &self.engine.answer {
            Answer::Unasked => "was not asked yet",
            Answer::Silent(why) | Answer::Untested(_, why) => why,
            Answer::Tested(_, abilities) => abilities.remark.as_ref()?,
        };
        Some(format!("{} {why}", self.engine.url))
    }
}

impl Judged {
    /// Nobody has asked them yet.
    pub(super) fn says_nothing(&self) -> bool {
        let is_unasked = |judged: &JudgedEngine| judged.engine.answer == Answer::Unasked;
        self.missing.is_none() && self.trouble.is_none() && self.engines.iter().all(is_unasked)
    }

    /// As if they were a Deployment of as many engines as there are.
    pub(super) fn workload(&self) -> Workload {
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let all = count(self.engines.len());
        let ready = self.engines.iter().filter(|engine| engine.takes_work());
        Workload {
            is_current: true,
            replicas: all,
            ready: count(ready.count()),
            updated: all,
            failure: None,
        }
    }

    pub(super) fn listed(&self) -> Vec<EngineStatus> {
        let engines = self.engines.iter().take(MOST_ENGINES);
        engines
            .map(|judged| EngineStatus {
                name: judged.engine.url.clone(),
                url: judged.engine.url.clone(),
                ready: judged.takes_work(),
                weight_version: judged
                    .facts()
                    .and_then(|facts| facts.weight_version.clone()),
                version: judged.version().cloned(),
                paused: judged.facts().is_some_and(|facts| facts.paused),
            })
            .collect()
    }

    /// The version of all weights that are known.
    pub(super) fn weights(&self) -> Option<String> {
        let facts = self.engines.iter().filter_map(JudgedEngine::facts);
        super::one_of(facts.filter_map(|facts| facts.weight_version.as_ref()))
    }

    /// Why a person must act.
    pub(super) fn unsuitable(&self) -> Option<Trouble> {
        if let Some(missing) = &self.missing {
            return Some(Trouble {
                reason: reasons::REFERENCE_NOT_FOUND,
                message: missing.clone(),
            });
        }
        let faults = self.engines.iter().filter_map(JudgedEngine::fault);
        Some(Trouble {
            reason: reasons::ENGINE_UNSUITABLE,
            message: some_of(faults.collect())?,
        })
    }

    /// What else there is to say.
    pub(super) fn remarks(&self) -> Option<String> {
        let mut all: Vec<String> = self.trouble.iter().cloned().collect();
        all.extend(some_of(
            self.engines
                .iter()
                .filter_map(JudgedEngine::remark)
                .collect(),
        ));
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The first ones, and how many more there are.
fn some_of(mut all: Vec<String>) -> Option<String> {
    let more = all.len().saturating_sub(MOST_NAMED);
    all.truncate(MOST_NAMED);
    let named = all.join("; ");
    match more {
        0 => (!named.is_empty()).then_some(named),
        more => Some(format!("{named}; and {more} more")),
    }
}
