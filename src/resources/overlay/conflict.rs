//! Where a template wants something else than what the operator owns.

use serde_json::{Map, Value};

use super::merge::{HANDLERS, ListRule, is_same, list_rule};

/// Adds the paths at which `wanted` differs from `owned`.
pub(super) fn find(wanted: &Value, owned: &Value, at: &str, found: &mut Vec<String>) {
    let (Value::Object(wanted), Value::Object(owned)) = (wanted, owned) else {
        if wanted != owned {
            found.push(at.to_owned());
        }
        return;
    };
    let has = |members: &Map<String, Value>, handler: &&str| members.contains_key(*handler);
    if HANDLERS.iter().any(|handler| has(owned, handler))
        && HANDLERS
            .iter()
            .any(|handler| has(wanted, handler) && !has(owned, handler))
    {
        // Another handler: no field is the same, and yet the whole is another one.
        found.push(at.to_owned());
        return;
    }
    for (field, owned) in owned {
        let Some(wanted) = wanted.get(field) else {
            continue;
        };
        let at = format!("{at}.{field}");
        match (wanted, owned) {
            (Value::Array(wanted), Value::Array(owned)) => {
                find_in_lists(list_rule(field), wanted, owned, &at, found);
            }
            (Value::Null, Value::Null) => {}
            (wanted, owned) => find(wanted, owned, &at, found),
        }
    }
}

fn find_in_lists(
    rule: ListRule,
    wanted: &[Value],
    owned: &[Value],
    at: &str,
    found: &mut Vec<String>,
) {
    if rule == ListRule::Append {
        return;
    }
    if rule == ListRule::Take {
        if wanted != owned {
            found.push(at.to_owned());
        }
        return;
    }
    for owned in owned {
        let Some(wanted) = wanted.iter().find(|wanted| is_same(rule, wanted, owned)) else {
            continue;
        };
        let at = format!("{at}[{}]", title(rule, wanted));
        match rule {
            ListRule::Replace(_) if wanted != owned => found.push(at),
            _ => find(wanted, owned, &at, found),
        }
    }
}

/// What an entry of a list is called: its first key.
fn title(rule: ListRule, entry: &Value) -> String {
    let key = match rule {
        ListRule::Merge(keys) => keys.first().copied().unwrap_or_default(),
        ListRule::Replace(key) => key,
        ListRule::Append | ListRule::Take => return String::new(),
    };
    match &entry[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
