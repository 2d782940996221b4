//! Edits of objects: each file has an object and JSON merge patches of it, which are refused or taken as the file's name says.

use rollout_operator::api::validate::validate_update;

use crate::manifests::changes;

#[test]
fn edits_are_refused_or_taken_as_their_file_says() {
    let mut report = Vec::new();
    for change in changes() {
        let violations = validate_update(&change.new, &change.old);
        let refused = violations
            .iter()
            .any(rollout_operator::api::validate::Violation::is_error);
        let wanted = change.file.ends_with("-refused.yaml");
        let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            refused, wanted,
            "{} {} {texts:?}",
            change.file, change.patch
        );
        if refused {
            let patch = &change.patch["spec"];
            report.push(format!(
                "{} {patch}\n    {}",
                change.file,
                texts.join("\n    ")
            ));
        }
    }
    insta::assert_snapshot!("changes", report.join("\n"));
}

#[test]
fn an_object_that_did_not_change_is_taken() {
    for change in changes() {
        assert_eq!(
            validate_update(&change.old, &change.old),
            [],
            "{}",
            change.file
        );
    }
}
