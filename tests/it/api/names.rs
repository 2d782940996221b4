//! Names that other programs rely on. A change of a snapshot here is a breaking change.

use rollout_operator::api::{conditions, meta};

#[test]
fn conditions_and_reasons() {
    insta::assert_yaml_snapshot!(
        "conditions",
        serde_json::json!({
            "pool": conditions::types::POOL, "job": conditions::types::JOB, "reasons": conditions::reasons::ALL,
        })
    );
}

#[test]
fn labels_annotations_finalizers_and_field_managers() {
    use meta::{annotations, field_managers, finalizers, labels};
    insta::assert_yaml_snapshot!(
        "names",
        serde_json::json!({
            "apiVersion": meta::API_VERSION,
            "kinds": [meta::POOL_KIND, meta::JOB_KIND],
            "managedBy": meta::CONTROLLER_NAME,
            "labels": [labels::POOL, labels::JOB, labels::JOB_UID, labels::ATTEMPT, labels::SLOT, labels::GENERATION, labels::COMPONENT,
                labels::APP_NAME, labels::APP_INSTANCE, labels::APP_COMPONENT, labels::APP_PART_OF, labels::APP_MANAGED_BY,
                labels::APP_VERSION, labels::KUEUE_QUEUE, labels::KUEUE_PRIORITY],
            "annotations": [annotations::REVISION, annotations::TEMPLATE, annotations::SETTINGS, annotations::SAFE_TO_EVICT, annotations::ARGO_IGNORE_RESTART_POLICY],
            "finalizers": [finalizers::TEARDOWN, finalizers::LAST_WORD],
            "fieldManagers": [field_managers::POOL, field_managers::POOL_STATUS, field_managers::JOB, field_managers::JOB_STATUS],
        })
    );
}

#[test]
fn api_version_is_group_and_version() {
    assert_eq!(
        meta::API_VERSION,
        format!("{}/{}", meta::GROUP, meta::VERSION)
    );
}

#[test]
fn reasons_are_words_that_tools_can_match() {
    let word = regex::Regex::new("^[A-Z][A-Za-z]+$").unwrap();
    let names = conditions::types::POOL
        .iter()
        .chain(conditions::types::JOB)
        .chain(conditions::reasons::ALL);
    for name in names {
        assert!(word.is_match(name), "{name}");
    }
}
