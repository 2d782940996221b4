//! What a verification looked at and what it could not, in words. Pure.

use serde::Serialize;

use super::ids::{HIGHEST_ID, Ids, LONGEST_STOP};

/// What was checked, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Scope {
    /// What was.
    pub checked: Vec<String>,
    /// What was not: it can be wrong in files that are called sound.
    pub not_checked: Vec<String>,
}

impl Scope {
    pub(super) fn of(ids: &Ids, tokenizer: Option<&str>, compared: u64, kept: u64) -> Self {
        let mut checked = vec![
            "counts, hashes, ledgers and metrics of the manifest against the files".to_owned(),
            "each row: its fields, the lengths of its arrays, masks of 0 and 1, finite log-probabilities not above 0, 0 where nothing is trained"
                .to_owned(),
        ];
        let mut not_checked = Vec::new();
        match ids {
            Ids::Builtin(_) => {
                checked.push("ids against the built-in tokenizer".to_owned());
                checked.push(format!(
                    "the text of {compared} of {kept} kept responses against their ids; up to {LONGEST_STOP} bytes that an engine cuts off the end are let pass"
                ));
                not_checked.push("prompt ids against the prompt".to_owned());
            }
            Ids::Opaque => {
                checked.push(format!("ids: from 0 to {HIGHEST_ID}"));
                let whose = tokenizer.map_or("the manifest names none".to_owned(), |name| {
                    format!("the job's is {name:?}")
                });
                not_checked.push(format!(
                    "ids against text and vocabulary: that needs the tokenizer, and {whose}"
                ));
            }
        }
        not_checked
            .push("prompts and labels against the data set, which is not in the output".to_owned());
        not_checked.push(
            "values of log-probabilities and rewards, and who wrote the files: the hashes are in the same directory"
                .to_owned(),
        );
        Self {
            checked,
            not_checked,
        }
    }
}
