//! What a person reads about each manifest: one snapshot per folder.

use rollout_operator::api::manifest::{Finding, Severity};
use rollout_operator::api::support::Context;

use super::{findings, lines};

/// Findings but for those about what a cluster may have.
fn without_notes(name: &str, context: Context) -> Vec<Finding> {
    let mut found = findings(name, context);
    found.retain(|finding| finding.severity != Severity::Note);
    found
}

#[test]
fn good_manifests_pass_everywhere() {
    assert_eq!(lines(&without_notes("good", Context::Cluster)), "");
    let mut local = findings("good", Context::Local);
    // Its pool is in the cluster.
    local.retain(|finding| !finding.file.ends_with("container.json"));
    assert_eq!(lines(&local), "");
}

#[test]
fn every_broken_rule_says_what_to_write_instead() {
    insta::assert_snapshot!("bad", lines(&without_notes("bad", Context::Cluster)));
}

#[test]
fn every_malformed_file_is_named_with_document_line_and_field() {
    insta::assert_snapshot!("malformed", lines(&findings("malformed", Context::Cluster)));
}

#[test]
fn what_is_not_built_is_refused() {
    insta::assert_snapshot!(
        "unsupported",
        lines(&findings("unsupported", Context::Cluster))
    );
}

#[test]
fn what_only_a_cluster_has_is_no_reason_to_refuse_locally() {
    let local = findings("unsupported", Context::Local);
    let paths: Vec<_> = local.iter().map(|finding| finding.path.as_str()).collect();
    assert!(
        !paths.contains(&"spec.output.url"),
        "local writes to its own directory"
    );
    assert!(paths.contains(&"spec.generate.multiTurn"));
}

#[test]
fn no_valid_manifest_is_refused_by_a_rule() {
    let refused: Vec<_> = findings("unsupported", Context::Cluster)
        .into_iter()
        .filter(|finding| finding.is_error() && !finding.message.starts_with("NotSupported: "))
        .collect();
    assert_eq!(lines(&refused), "");
}
