//! Where a template wants something else than what the operator owns.

use serde_json::Value;

use super::merge::{ListRule, is_same, list_rule};

/// Adds the paths at which `wanted` differs from `owned`.
pub(super) fn find(wanted: &Value, owned: &Value, at: &str, found: &mut Vec<String>) {
    let (Value::Object(wanted), Value::Object(owned)) = (wanted, owned) else {
        if wanted != owned {
            found.push(at.to_owned());
        }
        return;
    };
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
        let at = format!("{at}[{}]", title(wanted));
        match rule {
            ListRule::Replace(_) if wanted != owned => found.push(at),
            _ => find(wanted, owned, &at, found),
        }
    }
}

/// What an entry of a list is called.
fn title(entry: &Value) -> String {
    [
        "name",
        "mountPath",
        "devicePath",
        "containerPort",
        "ip",
        "topologyKey",
    ]
    .iter()
    .find_map(|key| match &entry[*key] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    })
    .unwrap_or_default()
}
