//! Field paths as the API server writes them: `spec.env[0].name`, `metadata.labels[app.kubernetes.io/name]`.

/// The path of a member of an object.
pub(crate) fn member(parent: &str, name: &str) -> String {
    let plain = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-$".contains(c));
    match (parent.is_empty(), plain) {
        (true, true) => name.to_owned(),
        (false, true) => format!("{parent}.{name}"),
        (_, false) => format!("{parent}[{name}]"),
    }
}

/// The path of an item of a list.
pub(crate) fn index(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

/// The path one level up, or none at the root.
pub(crate) fn parent(path: &str) -> Option<&str> {
    if let Some(open) = path.strip_suffix(']').and_then(|rest| rest.rfind('[')) {
        return Some(&path[..open]);
    }
    match path.rfind('.') {
        Some(dot) => Some(&path[..dot]),
        None if path.is_empty() => None,
        None => Some(""),
    }
}

/// Whether a path is another, or below it.
pub(crate) fn is_within(path: &str, above: &str) -> bool {
    above.is_empty()
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The member of an object that a path below it goes through.
pub(crate) fn first_below<'a>(above: &str, path: &'a str) -> Option<&'a str> {
    if !is_within(path, above) {
        return None;
    }
    let rest = path[above.len()..].trim_start_matches('.');
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|member| !member.is_empty())
}
