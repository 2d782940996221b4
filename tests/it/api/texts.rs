//! What a person reads about each manifest: one snapshot per folder.

use rollout_operator::api::manifest::{self, Finding, Purpose, Severity};
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
    // The pool of container.json is in the cluster. What is left out without one is told, and refuses nothing.
    local.retain(|finding| finding.is_error() && !finding.file.ends_with("container.json"));
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
    assert!(
        paths.contains(&"spec.generate.agentic.sandbox.template"),
        "nothing runs beside an agent here"
    );
}

#[test]
fn what_a_variable_comes_from_must_be_in_the_files() {
    let text = r#"
apiVersion: rollout-operator.dev/v1alpha1
kind: RolloutJob
metadata: {name: job}
spec:
  pool: {engine: {simulator: {}}}
  dataset: {inline: [{prompt: [{role: user, content: hi}]}]}
  rollout: {batchSize: 1}
  output: {url: "file:///out"}
  plugins: {image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: keys, key: b}}}]}
  generate:
    agentic:
      agent:
        container:
          template:
            spec:
              containers:
              - name: agent
                image: i
                command: [run]
                envFrom: [{secretRef: {name: gone}}, {configMapRef: {name: maybe, optional: true}}]
                env:
                - {name: B, valueFrom: {secretKeyRef: {name: keys, key: a}}}
                - {name: C, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {a: "1"}
"#;
    let purpose = Purpose {
        context: Context::Local,
        complete: true,
    };
    let found = manifest::examine(&manifest::read_text("f.yaml", text), purpose);
    let container = "spec.generate.agentic.agent.container.template.spec.containers[0]";
    let expected = [
        (
            "spec.plugins.env[0].valueFrom.secretKeyRef".to_owned(),
            "Secret/keys has no key b; ",
        ),
        (
            format!("{container}.envFrom[0].secretRef"),
            "Secret/gone is not in these files: ",
        ),
        (
            format!("{container}.env[1].valueFrom.fieldRef"),
            "has no meaning without a cluster",
        ),
    ];
    assert_eq!(found.len(), expected.len(), "{}", lines(&found));
    for (path, message) in expected {
        let is_said = found.iter().any(|finding| {
            finding.is_error() && finding.path == path && finding.message.starts_with(message)
        });
        assert!(is_said, "{path}: {message}: {}", lines(&found));
    }
}

#[test]
fn no_valid_manifest_is_refused_by_a_rule() {
    let refused: Vec<_> = findings("unsupported", Context::Cluster)
        .into_iter()
        .filter(|finding| finding.is_error() && !finding.message.starts_with("NotSupported: "))
        .collect();
    assert_eq!(lines(&refused), "");
}
