//! Whether a live object already is what we would apply.
//!
//! The API server writes into `metadata.managedFields` which fields our last apply set, and by that how it treats each list: entries by
//! key (`k:`), sets (`v:`), or as one value. So no table of Kubernetes' types is needed here: what we want, what is there, and what we own
//! are walked side by side.
//!
//! - A field that another manager owns (replicas of an autoscaler, a container that was injected, annotations of Argo CD) is never looked
//!   at. A field that another manager *took* from us is a difference.
//! - A field that we own and no longer want is a difference: an apply removes it.
//! - Defaults that the API server filled in are not.

use std::fmt;

use serde_json::{Map, Value};

use super::quantity;

/// Where a live object is not what we want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// We never applied it, or somebody wiped the record of it.
    NeverApplied,
    /// The value is another one.
    Value(String),
    /// Somebody else took the field.
    Taken(String),
    /// We own the field and no longer want it.
    LeftOver(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverApplied => f.write_str("never applied"),
            Self::Value(path) => write!(f, "{path} has another value"),
            Self::Taken(path) => write!(f, "{path} was taken by another manager"),
            Self::LeftOver(path) => write!(f, "{path} is no longer wanted"),
        }
    }
}

/// The first difference between what a manager wants and what is there; none: an apply would change nothing.
pub fn difference(desired: &Value, live: &Value, manager: &str) -> Option<Difference> {
    let Some(owned) = owned(live, manager) else {
        return Some(Difference::NeverApplied);
    };
    let walk = Walk {
        path: String::new(),
        quantities: false,
    };
    walk.value(desired, Some(live), owned).err()
}

/// What a manager owns, with the values that are there: two fingerprints are equal when nobody touched what is ours.
pub fn fingerprint(live: &Value, manager: &str) -> Value {
    match owned(live, manager) {
        Some(fields) => Value::Array(vec![fields.clone(), project(live, fields)]),
        None => Value::Null,
    }
}

/// What a manager's last apply set.
fn owned<'a>(live: &'a Value, manager: &str) -> Option<&'a Value> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let entry = entries.iter().find(|entry| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().is_none_or(str::is_empty)
    })?;
    entry.get("fieldsV1")
}

/// Never in managed fields: they say which object it is.
fn names_the_object(path: &str) -> bool {
    matches!(
        path,
        "apiVersion" | "kind" | "metadata.name" | "metadata.namespace" | "metadata.uid"
    )
}

struct Walk {
    path: String,
    quantities: bool,
}

impl Walk {
    fn below(&self, field: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{dot}{field}", self.path),
            quantities: self.quantities || quantity::holds(field),
        }
    }

    fn value(
        &self,
        desired: &Value,
        live: Option<&Value>,
        owned: &Value,
    ) -> Result<(), Difference> {
        let fields = owned.as_object().filter(|fields| !fields.is_empty());
        match (desired, fields) {
            (Value::Object(desired), Some(fields)) => self.object(desired, live, fields),
            (Value::Array(desired), Some(fields)) => self.list(desired, live, fields),
            _ if self.same(desired, live) => Ok(()),
            _ => Err(Difference::Value(self.path.clone())),
        }
    }

    fn object(
        &self,
        desired: &Map<String, Value>,
        live: Option<&Value>,
        owned: &Map<String, Value>,
    ) -> Result<(), Difference> {
        for (name, value) in desired {
            let below = self.below(name);
            if names_the_object(&below.path) {
                continue;
            }
            let there = live.and_then(|live| live.get(name));
            match owned.get(&format!("f:{name}")) {
                Some(fields) => below.value(value, there, fields)?,
                // Left out when it was written, and so never owned.
                None if is_zero(value) && there.is_none_or(is_zero) => {}
                None => return Err(Difference::Taken(below.path)),
            }
        }
        let left_over = owned
            .keys()
            .filter_map(|key| key.strip_prefix("f:"))
            .find(|name| desired.get(*name).is_none_or(Value::is_null));
        match left_over {
            Some(name) => Err(Difference::LeftOver(self.below(name).path)),
            None => Ok(()),
        }
    }

    fn list(
        &self,
        desired: &[Value],
        live: Option<&Value>,
        owned: &Map<String, Value>,
    ) -> Result<(), Difference> {
        let there = live
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        // Exact keys first: what leaves out a part of its key takes what is left.
        let places = || {
            owned
                .iter()
                .filter_map(|(key, fields)| Some((Place::parse(key)?, fields)))
        };
        let is_exact = |place: &Place| desired.iter().any(|item| place.is(item));
        let exact = places().filter(|(place, _)| is_exact(place));
        let loose = places().filter(|(place, _)| !is_exact(place));
        let mut wanted = vec![false; desired.len()];
        for (place, fields) in exact.chain(loose) {
            let below = Self {
                path: format!("{}{place}", self.path),
                quantities: self.quantities,
            };
            let free = |number: usize| !wanted[number];
            let exact = desired.iter().position(|item| place.is(item));
            let found = exact.or_else(|| {
                let mut all = desired.iter().enumerate();
                let item = all.find(|(number, item)| free(*number) && place.may_be(item));
                item.map(|(number, _)| number)
            });
            let Some(number) = found else {
                return Err(Difference::LeftOver(below.path));
            };
            wanted[number] = true;
            let live = there.iter().find(|item| place.is(item));
            below.value(&desired[number], live, fields)?;
        }
        match wanted.iter().position(|wanted| !wanted) {
            Some(number) => Err(Difference::Taken(format!("{}[{number}]", self.path))),
            None => Ok(()),
        }
    }

    /// Whether a value that is owned as a whole is there. More fields are defaults: an edit of them would have taken the field from us.
    fn same(&self, desired: &Value, live: Option<&Value>) -> bool {
        let Some(live) = live else {
            return is_zero(desired);
        };
        match (desired, live) {
            (Value::Object(desired), Value::Object(live)) => desired
                .iter()
                .all(|(name, value)| self.below(name).same(value, live.get(name))),
            (Value::Array(desired), Value::Array(live)) => {
                desired.len() == live.len()
                    && desired
                        .iter()
                        .zip(live)
                        .all(|(desired, live)| self.same(desired, Some(live)))
            }
            (Value::Number(left), Value::Number(right)) => {
                left == right || left.as_f64() == right.as_f64()
            }
            _ => desired == live || (self.quantities && quantity::same(desired, live)),
        }
    }
}

/// An entry of a list in managed fields.
enum Place {
    Key(Map<String, Value>),
    Member(Value),
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        if let Some(key) = text.strip_prefix("k:") {
            return serde_json::from_str(key).ok().map(Self::Key);
        }
        let member = text.strip_prefix("v:")?;
        serde_json::from_str(member).ok().map(Self::Member)
    }

    /// Whether a wanted entry is this one. What it leaves out of the key is a default.
    fn may_be(&self, item: &Value) -> bool {
        match self {
            Self::Key(key) => key
                .iter()
                .all(|(field, value)| item.get(field).is_none_or(|there| there == value)),
            Self::Member(member) => item == member,
        }
    }

    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Key(key) => key
                .iter()
                .all(|(field, value)| item.get(field) == Some(value)),
            Self::Member(member) => item == member,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => {
                let words: Vec<_> = key
                    .values()
                    .map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
                    .collect();
                write!(f, "[{}]", words.join(","))
            }
            Self::Member(member) => write!(f, "[{member}]"),
        }
    }
}

/// What Go leaves out when it writes an object.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

/// The values at the owned fields.
fn project(live: &Value, owned: &Value) -> Value {
    let Some(fields) = owned.as_object().filter(|fields| !fields.is_empty()) else {
        return live.clone();
    };
    let mut found = Map::new();
    for (key, below) in fields {
        let there = match (key.strip_prefix("f:"), Place::parse(key)) {
            (Some(name), _) => live.get(name),
            (None, Some(place)) => live
                .as_array()
                .and_then(|items| items.iter().find(|item| place.is(item))),
            (None, None) => continue,
        };
        let value = there.map_or(Value::Null, |there| project(there, below));
        found.insert(key.clone(), value);
    }
    Value::Object(found)
}
