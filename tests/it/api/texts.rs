//! What a person reads about each manifest: one snapshot per folder.

use rollout_operator::api::support::Context;

use super::{findings, lines};

#[test]
fn good_manifests_pass_everywhere() {
    for context in [Context::Cluster, Context::Local] {
        assert_eq!(lines(&findings("good", context)), "");
    }
}

#[test]
fn every_broken_rule_says_what_to_write_instead() {
    insta::assert_snapshot!("bad", lines(&findings("bad", Context::Cluster)));
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
