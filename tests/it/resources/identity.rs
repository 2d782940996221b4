//! Names, labels, revisions and tokens.

use std::collections::BTreeSet;

use rollout_operator::api::meta::{self, labels};
use rollout_operator::resources::secrets::{JobSecrets, OperatorKey, pool_control_token};
use rollout_operator::resources::{Kind, names, revision};
use serde_json::json;

use super::{a_pool, everything, key, spec_pool};

fn label() -> regex::Regex {
    regex::Regex::new("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$").unwrap()
}

#[test]
fn every_name_of_an_owner_of_maximal_length_is_a_label() {
    let longest = "a".repeat(meta::MAX_NAME_LENGTH);
    let dashes = format!("a{}b", "-".repeat(meta::MAX_NAME_LENGTH - 2));
    for owner in [longest.as_str(), dashes.as_str(), "a"] {
        let names = [
            names::engine(owner),
            names::engines(owner),
            names::account(owner),
            names::simulator(owner),
            names::router(owner),
            names::sessions(owner),
            names::secret(owner),
            names::driver_policy(owner),
            names::agent_policy(owner),
            names::ledger(owner),
            names::driver(owner, 1),
            names::driver(owner, u32::MAX),
            names::agent(owner, 0, 1),
            names::agent(owner, 99_999, 99_999),
            names::agent(owner, u32::MAX, u32::MAX),
        ];
        for name in &names {
            assert!(label().is_match(name), "{name} ({})", name.len());
        }
        assert_eq!(
            names.iter().collect::<BTreeSet<_>>().len(),
            names.len(),
            "{names:?}"
        );
    }
    // What fits is never cut.
    assert_eq!(
        names::agent(&longest, 99_999, 99_999),
        format!("{longest}-agent-99999-99999")
    );
}

#[test]
fn names_that_were_cut_are_still_different() {
    let one = format!("{}a", "x".repeat(44));
    let other = format!("{}b", "x".repeat(44));
    let cut = |owner: &str| names::agent(owner, u32::MAX, u32::MAX);
    assert_ne!(cut(&one), cut(&other));
    assert_eq!(cut(&one), cut(&one));
    assert!(cut(&one).ends_with("-agent-4294967295-4294967295"));
}

#[test]
fn a_pool_and_a_job_of_one_name_share_no_object() {
    let (pools, jobs) = everything();
    for job in &jobs {
        let name = &job.job.owner.name;
        let ours: Vec<_> = job.all();
        for pool in &pools {
            let mut pool = super::Resource {
                owner: pool.owner.clone(),
                spec: pool.spec.clone(),
            };
            pool.owner.name.clone_from(name);
            pool.owner.namespace.clone_from(&job.job.owner.namespace);
            let Ok(theirs) = pool.pool_objects() else {
                continue;
            };
            for object in theirs.into_objects() {
                let taken = ours
                    .iter()
                    .find(|our| our.kind() == object.kind() && our.name() == object.name());
                assert!(taken.is_none(), "{object:?}");
            }
        }
    }
}

#[test]
fn kueue_is_told_of_workloads_only() {
    let objects = spec_pool("from-claim")
        .pool_objects()
        .unwrap()
        .into_objects();
    for object in objects {
        let queue = object.label(labels::KUEUE_QUEUE);
        let is_engines = object.kind() == Kind::Deployment && object.name() == "from-claim-engine";
        assert_eq!(queue, is_engines.then_some("gpus"), "{object:?}");
    }
    let job = super::spec_job("everything");
    for object in job.all() {
        let expected = (object.kind() == Kind::Pod).then_some("rl");
        assert_eq!(object.label(labels::KUEUE_QUEUE), expected, "{object:?}");
    }
}

#[test]
fn a_revision_is_of_what_an_engine_depends_on() {
    let base = json!({"model": {"path": "m"}, "engine": {"image": "i"}});
    let of = |edit: fn(&mut serde_json::Value)| {
        let mut spec = base.clone();
        edit(&mut spec);
        revision::of_engine(&a_pool(&spec).pool_spec())
    };
    let first = of(|_| {});
    for same in [
        of(|spec| spec["replicas"] = json!(7)),
        of(|spec| spec["suspend"] = json!(true)),
        of(|spec| spec["router"] = json!({})),
        of(|spec| spec["weights"] = json!({"requiredVersion": "12"})),
        of(|spec| spec["update"] = json!({"maxSurge": 2})),
        of(|spec| spec["allowedNamespaces"] = json!(["a"])),
        of(|spec| spec["networkPolicy"] = json!({"enabled": false})),
        // A default that is written out.
        of(|spec| spec["engine"]["drainTimeoutSeconds"] = json!(120)),
    ] {
        assert_eq!(same, first);
    }
    for different in [
        of(|spec| spec["engine"]["image"] = json!("j")),
        of(|spec| spec["model"]["revision"] = json!("r")),
        of(|spec| spec["engine"]["drainTimeoutSeconds"] = json!(121)),
        of(|spec| {
            spec["engine"]["template"] =
                json!({"spec": {"nodeSelector": {"a": "b"}, "containers": []}});
        }),
    ] {
        assert_ne!(different, first);
    }
}

/// These hashes are in clusters: a release that changes them restarts every engine. A new field has to be left out at its default.
#[test]
fn revisions_do_not_change_with_the_operator() {
    let known = ["from-claim", "from-image", "from-hub", "simulated"].map(|name| {
        format!(
            "{name} {}",
            revision::of_engine(&spec_pool(name).pool_spec())
        )
    });
    insta::assert_yaml_snapshot!("revisions", known);
}

#[test]
fn a_revision_does_not_depend_on_the_order_of_keys() {
    let template = |text: &str| {
        let template: serde_json::Value = serde_json::from_str(text).unwrap();
        let pool = a_pool(
            &json!({"model": {"path": "m"}, "engine": {"image": "i", "template": template}}),
        );
        revision::of_engine(&pool.pool_spec())
    };
    let one = template(r#"{"spec": {"containers": [], "nodeSelector": {"a": "1", "b": "2"}}}"#);
    let other = template(r#"{"spec": {"nodeSelector": {"b": "2", "a": "1"}, "containers": []}}"#);
    assert_eq!(one, other);
}

#[test]
fn tokens_are_of_one_attempt_of_one_job_and_one_operator() {
    let tokens = |key: &OperatorKey, uid: &str, attempt| {
        let secrets = JobSecrets::of(key, uid, attempt);
        [secrets.control_token, secrets.claim_secret]
    };
    let first = tokens(&key(), "u", 1);
    assert_eq!(first, tokens(&key(), "u", 1));
    let mut all = BTreeSet::from_iter(first);
    all.extend(tokens(&key(), "u", 2));
    all.extend(tokens(&key(), "v", 1));
    all.extend(tokens(&OperatorKey::new("another"), "u", 1));
    all.insert(pool_control_token(&key(), "u"));
    assert_eq!(all.len(), 9);
    assert!(all.iter().all(|token| token.len() == 64), "{all:?}");
}

#[test]
fn claim_tokens_are_those_that_the_router_derives() {
    let secrets = JobSecrets::of(&key(), "u", 1);
    let holder = rollout_router::Holder {
        job: "swe".to_owned(),
        slot: "3".to_owned(),
        generation: 7,
    };
    assert_eq!(
        secrets.claim_token("swe", 3, 7),
        holder.token(&secrets.claim_secret)
    );
}

#[test]
fn secrets_are_not_shown() {
    let secrets = JobSecrets::of(&key(), "u", 1);
    let job = super::spec_job("everything");
    let objects = job.objects();
    for text in [
        format!("{secrets:?}"),
        format!("{:?}", key()),
        format!("{objects:?}"),
    ] {
        assert!(
            !text.contains(&secrets.control_token) && !text.contains("a key"),
            "{text}"
        );
    }
}
