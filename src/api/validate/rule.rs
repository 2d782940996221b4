//! The CEL rules of a definition, evaluated from the definition itself: one source of truth, and the rule's own message.
//!
//! Rules are compiled once per process. They are evaluated where the API server evaluates them: at every object, list and map of the schema
//! that has some and that is in the object; rules that name `oldSelf` only when there is an old value at the same place. (Items of lists
//! have no such rules: matching old items needs keys.) A rule that cannot be evaluated refuses the object, as on the server. A rule that
//! reads a place that does not fit its schema is left out: the error about that place says it.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, extensions};
use regex::Regex;
use serde_json::Value;

use super::touched::Touched;
use super::violation::Violation;
use crate::api::manifest::path;

/// The functions of the API server's rules, as far as ours use them.
static FUNCTIONS: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut functions = Env::stdlib();
    // A rule that calls what is not there refuses the object, and says so.
    let _ = extensions::strings(&mut functions);
    Arc::new(functions)
});

/// Rules at one place of a schema, and at the places below it.
pub(super) struct CelRules {
    here: Vec<Rule>,
    properties: Vec<(String, CelRules)>,
    items: Option<Box<CelRules>>,
    entries: Option<Box<CelRules>>,
}

struct Rule {
    program: Result<Program, String>,
    about_change: bool,
    /// Paths that the rule reads, from its place.
    reads: BTreeSet<String>,
    message: String,
    field: String,
}

impl CelRules {
    pub(super) fn compile(schema: &Value) -> Self {
        let below = |keyword: &str| {
            let inner = Self::compile(&schema[keyword]);
            (!inner.is_empty()).then(|| Box::new(inner))
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        let rules = schema["x-kubernetes-validations"].as_array();
        Self {
            here: rules.into_iter().flatten().map(Rule::compile).collect(),
            properties: properties
                .map(|(name, inner)| (name.clone(), Self::compile(inner)))
                .filter(|(_, inner)| !inner.is_empty())
                .collect(),
            items: schema["items"]
                .is_object()
                .then(|| below("items"))
                .flatten(),
            entries: schema["additionalProperties"]
                .is_object()
                .then(|| below("additionalProperties"))
                .flatten(),
        }
    }

    fn is_empty(&self) -> bool {
        self.here.is_empty()
            && self.properties.is_empty()
            && self.items.is_none()
            && self.entries.is_none()
    }

    /// Rules that an object breaks; with an old object also those about changes. Both have their defaults already.
    pub(super) fn broken(
        &self,
        object: &Value,
        old: Option<&Value>,
        touched: &Touched,
    ) -> Vec<Violation> {
        let mut walk = Walk {
            touched,
            found: Vec::new(),
        };
        self.walk(object, old, "", &mut walk);
        walk.found
    }

    fn walk(&self, value: &Value, old: Option<&Value>, at: &str, found: &mut Walk<'_>) {
        if !self.here.is_empty() {
            let broken = evaluate(&self.here, value, old, at, found.touched);
            found.found.extend(broken);
        }
        for (name, rules) in &self.properties {
            if let Some(inner) = value.get(name) {
                let old = old.and_then(|old| old.get(name));
                rules.walk(inner, old, &path::member(at, name), found);
            }
        }
        if let (Some(rules), Value::Array(items)) = (&self.items, value) {
            for (position, item) in items.iter().enumerate() {
                rules.walk(item, None, &path::index(at, position), found);
            }
        }
        if let (Some(rules), Value::Object(entries)) = (&self.entries, value) {
            for (name, inner) in entries {
                let old = old.and_then(|old| old.get(name));
                rules.walk(inner, old, &path::member(at, name), found);
            }
        }
    }
}

/// What a walk carries along.
struct Walk<'a> {
    touched: &'a Touched,
    found: Vec<Violation>,
}

impl Rule {
    fn compile(rule: &Value) -> Self {
        let text = |keyword: &str| rule[keyword].as_str().unwrap_or_default();
        let source = text("rule");
        Self {
            program: Program::compile(source).map_err(|error| format!("{source}: {error}")),
            about_change: source.contains("oldSelf"),
            reads: reads(source),
            message: text("message").to_owned(),
            field: text("fieldPath").to_owned(),
        }
    }

    fn holds(&self, context: &Context<'_, '_>) -> Result<bool, String> {
        let program = self.program.as_ref().map_err(String::clone)?;
        match program.execute(context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("gives {:?}, not true or false", other.type_of())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The paths below `self` in the text of a rule. Those below `oldSelf` are of an object that fitted.
fn reads(source: &str) -> BTreeSet<String> {
    static PATH: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\bself((?:\.[A-Za-z]+)+)(\()?").ok());
    let Some(pattern) = PATH.as_ref() else {
        return BTreeSet::new();
    };
    pattern
        .captures_iter(source)
        .map(|captures| {
            let path = captures[1].trim_start_matches('.');
            // The last word of a call is the function.
            let path = match (captures.get(2), path.rsplit_once('.')) {
                (Some(_), Some((receiver, _))) => receiver,
                _ => path,
            };
            path.to_owned()
        })
        .collect()
}

fn evaluate(
    rules: &[Rule],
    value: &Value,
    old: Option<&Value>,
    at: &str,
    touched: &Touched,
) -> Vec<Violation> {
    let mut context = Context::with_env(Arc::clone(&FUNCTIONS));
    let variables = [("self", Some(value)), ("oldSelf", old)];
    for (name, value) in variables {
        if let Some(value) = value {
            context.add_variable_from_value(name, to_cel(value));
        }
    }
    rules
        .iter()
        .filter(|rule| !rule.about_change || old.is_some())
        .filter(|rule| {
            let mut reads = rule.reads.iter();
            !reads.any(|read| touched.spoils(format!("{at}.{read}").trim_start_matches('.')))
        })
        .filter_map(|rule| {
            let message = match rule.holds(&context) {
                Ok(true) => return None,
                Ok(false) => rule.message.clone(),
                Err(error) => format!("{} (the rule cannot be evaluated: {error})", rule.message),
            };
            let path = format!("{at}{}", rule.field);
            Some(Violation::error(path.trim_start_matches('.'), message))
        })
        .collect()
}

/// A JSON value as rules see it. Every whole number is a signed one, as the API server types it.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => cel::Value::Int(whole),
            (None, Some(float)) => cel::Value::Float(float),
            (None, None) => cel::Value::Null,
        },
        Value::String(text) => text.clone().into(),
        Value::Array(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Object(object) => object
            .iter()
            .map(|(name, inner)| (name.clone(), to_cel(inner)))
            .collect::<std::collections::HashMap<_, _>>()
            .into(),
    }
}
