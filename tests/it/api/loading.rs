//! Files as typed objects, for `local` and the controllers.

use rollout_operator::api::job::TokenMode;
use rollout_operator::api::manifest::{Manifests, Purpose, Rejected, load};
use rollout_operator::api::support::Context;

use super::lines;
use crate::manifests::fixture;

const LOCAL: Purpose = Purpose {
    context: Context::Local,
    complete: true,
};

fn loaded(name: &str) -> Manifests {
    loaded_for(name, LOCAL)
}

fn loaded_for(name: &str, purpose: Purpose) -> Manifests {
    load(&[fixture(name)], purpose).unwrap_or_else(|rejected| panic!("{rejected}"))
}

#[test]
fn a_job_its_pool_and_its_data_come_from_the_same_file() {
    let manifests = loaded("good/quickstart.yaml");
    let job = &manifests.jobs[0].object;
    let pool = manifests
        .pool(None, &job.spec.pool_ref.as_ref().unwrap().name)
        .unwrap();
    assert_eq!(pool.spec.replicas, 2);
    let rows = job.spec.dataset.config_map.as_ref().unwrap();
    let map = manifests.config_map(None, &rows.name).unwrap();
    assert!(map.data.as_ref().unwrap()[&rows.key].contains("1 + 1"));
    assert_eq!(manifests.warnings, []);
}

#[test]
fn defaults_are_applied() {
    // Its pool is in the cluster.
    let purpose = Purpose {
        context: Context::Cluster,
        complete: true,
    };
    let job = &loaded_for("good/container.json", purpose).jobs[0]
        .object
        .spec;
    assert_eq!(job.rollout.batch_size, 32);
    assert_eq!(job.rollout.steps, 1);
    assert_eq!(job.rollout.request_timeout_seconds, 3600);
    assert_eq!(job.rollout.error_budget.infra_failures, 100);
    assert_eq!(job.teardown.drain_seconds, 60);
    assert_eq!(job.dataset.prompt_key(), "prompt");
    let agentic = job.generate.agentic.as_ref().unwrap();
    assert_eq!(agentic.session_deadline_seconds, 3600);
    assert_eq!(agentic.tokens.unwrap_or_default(), TokenMode::Recorded);
}

#[test]
fn a_list_is_its_items() {
    let manifests = loaded("good/agent.yaml");
    assert_eq!(manifests.config_maps.len(), 1);
    assert_eq!(manifests.jobs.len(), 1);
    assert_eq!(
        manifests.jobs[0]
            .document
            .line_of("spec.generate.agentic.sessionsPerPod"),
        Some(36)
    );
}

#[test]
fn namespaces_keep_names_apart() {
    let manifests = loaded("good/quickstart.yaml");
    assert!(manifests.config_map(Some("default"), "prompts").is_some());
    assert!(manifests.config_map(Some("other"), "prompts").is_none());
}

#[test]
fn every_error_of_every_file_is_told_at_once() {
    let paths = [
        fixture("bad/job.yaml"),
        fixture("malformed/structure.yaml"),
        fixture("nowhere.yaml"),
    ];
    let Err(Rejected { findings }) = load(&paths, LOCAL) else {
        panic!("bad files were taken");
    };
    let text = lines(&findings);
    for file in [
        "bad/job.yaml:1",
        "bad/job.yaml:9",
        "malformed/structure.yaml:6",
        "nowhere.yaml: cannot be read",
    ] {
        assert!(text.contains(file), "{file} in {text}");
    }
}

#[test]
fn without_a_cluster_everything_that_is_named_must_be_in_the_files() {
    let Err(Rejected { findings }) = load(&[fixture("malformed/references.yaml")], LOCAL) else {
        panic!("a job without its pool was taken");
    };
    let text = lines(&findings);
    for missing in [
        "dangling: spec.poolRef.name: SGLangPool/qwen is not in these files: add the file that has it",
        "dangling: spec.plugins.code.configMap.name: ConfigMap/hooks is not in these files: add the file that has it",
        "elsewhere: spec.dataset.configMap: ConfigMap/prompts is not in these files: it is in namespace default, and is looked for in other",
    ] {
        assert!(text.contains(missing), "{missing} in {text}");
    }
    let loaded =
        load(&[fixture("good/engines.yaml")], LOCAL).expect("nobody reads its Secrets here");
    assert_eq!(loaded.warnings, []);
}
