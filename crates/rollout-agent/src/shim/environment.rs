//! The environment of the user's code: an allow-list of the shim's own, what the user gave, and what belongs to the session.

use std::ffi::{OsStr, OsString};

use crate::wire::Start;

/// Names that pass; a name that ends in `*` is a prefix.
const ALLOWED: &[&str] = &["PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "PYTHON*"];

/// Says to which session of a shim a process belongs, whatever process group it is in.
pub(super) const MARK: &str = "ROLLOUT_SESSION_MARK";

/// The variables that every process of the user's gets.
pub fn base(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    inherit_all: bool,
    given: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<_> = own
        .into_iter()
        .filter(|(name, _)| inherit_all || is_allowed(name))
        .filter(|(name, _)| !given.iter().any(|(other, _)| OsStr::new(other) == name))
        .collect();
    variables.extend(
        given
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    variables
}

fn is_allowed(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        ALLOWED.iter().any(|allowed| {
            allowed
                .strip_suffix('*')
                .map_or(*allowed == name, |prefix| name.starts_with(prefix))
        })
    })
}

/// The variables of one session.
pub(super) fn of_session(start: &Start, mark: &str) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("OPENAI_BASE_URL", format!("{}/v1", start.base_url)),
        ("OPENAI_API_KEY", start.token.clone()),
        ("ANTHROPIC_BASE_URL", start.base_url.clone()),
        ("ANTHROPIC_API_KEY", start.token.clone()),
        ("ROLLOUT_BASE_URL", start.base_url.clone()),
        ("ROLLOUT_SESSION_ID", start.session_id.clone()),
        (MARK, mark.to_owned()),
    ];
    if let Some(deadline) = start.deadline_seconds {
        variables.push(("ROLLOUT_DEADLINE_SECONDS", deadline.to_string()));
    }
    if start.resume {
        variables.push(("ROLLOUT_RESUME", "1".to_owned()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(names: &[&str]) -> Vec<(OsString, OsString)> {
        names
            .iter()
            .map(|name| (OsString::from(name), OsString::from("x")))
            .collect()
    }

    #[test]
    fn only_what_is_allowed_passes() {
        let passed = base(
            own(&[
                "PATH",
                "LC_ALL",
                "PYTHONPATH",
                "ROLLOUT_CLAIM_TOKEN",
                "AWS_SECRET",
                "PATHS",
            ]),
            false,
            &[],
        );
        let names: Vec<_> = passed
            .iter()
            .map(|(name, _)| name.to_str().unwrap())
            .collect();
        assert_eq!(names, ["PATH", "LC_ALL", "PYTHONPATH"]);
    }

    #[test]
    fn what_the_user_gives_wins() {
        let passed = base(
            own(&["PATH", "HOME"]),
            false,
            &[("PATH".to_owned(), "/bin".to_owned())],
        );
        assert_eq!(passed.iter().filter(|(name, _)| name == "PATH").count(), 1);
        assert!(passed.contains(&("PATH".into(), "/bin".into())));
    }
}
