//! Fields that are known, and written in another place: a level too high or too low, or beside the object that they are in.

use std::fmt;

use serde_json::Value;

use crate::api::manifest::path;

/// Where a field belongs.
pub(super) struct Home {
    /// Its path.
    pub(super) path: String,
    /// The object that it is a member of.
    parent: String,
    is_above: bool,
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path: _,
            parent,
            is_above,
        } = self;
        if *is_above {
            write!(f, "it belongs to {parent}: indent it less")
        } else {
            write!(f, "it belongs to {parent}")
        }
    }
}

/// The place of the spec nearest to `at` that has a field of that name, when there is one nearest.
///
/// Words that many objects have (`name`, `path`, `key`) have no home of their own, and places below a list cannot be named.
pub(super) fn home(schema: &Value, at: &str, name: &str) -> Option<Home> {
    const EVERYWHERE: [&str; 7] = ["name", "key", "path", "type", "url", "template", "plugin"];
    if EVERYWHERE.contains(&name) {
        return None;
    }
    let mut places = Vec::new();
    collect(&schema["properties"]["spec"], "spec", name, &mut places);
    let distance = |place: &String| steps(at, place);
    let least = places.iter().map(distance).min()?;
    let mut nearest = places.into_iter().filter(|place| steps(at, place) == least);
    let (parent, None) = (nearest.next()?, nearest.next()) else {
        return None;
    };
    Some(Home {
        path: path::member(&parent, name),
        is_above: path::is_within(at, &parent),
        parent,
    })
}

fn collect(schema: &Value, at: &str, name: &str, places: &mut Vec<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    if properties.contains_key(name) {
        places.push(at.to_owned());
    }
    for (member, inner) in properties {
        collect(inner, &path::member(at, member), name, places);
    }
}

/// Steps up from one place and down to another. A step down counts more: what is written too deep is the commoner slip.
fn steps(from: &str, to: &str) -> usize {
    let (from, to): (Vec<&str>, Vec<&str>) = (from.split('.').collect(), to.split('.').collect());
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    (from.len() - common) + 2 * (to.len() - common)
}
