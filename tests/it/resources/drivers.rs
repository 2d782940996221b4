//! The driver's Pod of an attempt, and the settings that it reads.

use std::time::Duration;

use rollout_driver::config::{DriverConfig, TokenizerSource, engine_config};
use rollout_operator::api::meta::{annotations, finalizers, labels};
use rollout_operator::resources::job;
use rollout_router::Config;
use serde_json::{Value, json};

use super::{Case, arguments, container, env, everything, mount, spec_job, volume};

pub(super) fn driver_settings(case: &Case) -> Value {
    let objects = case.objects();
    let text = objects.settings.value["data"]["driver.json"]
        .as_str()
        .unwrap();
    serde_json::from_str(text).unwrap()
}

/// The settings as the driver reads them, with a token that is there.
fn driver_config(case: &Case) -> DriverConfig {
    let mut settings = driver_settings(case);
    assert_eq!(
        settings["control_token_file"],
        "/etc/rollout/secrets/control-token"
    );
    settings["control_token_file"] = Value::Null;
    DriverConfig::parse(&settings.to_string()).unwrap()
}

fn router_settings(case: &Case) -> Value {
    let objects = case.objects();
    let text = objects.settings.value["data"]["router.yaml"]
        .as_str()
        .unwrap();
    serde_yaml::from_str(text).unwrap()
}

#[test]
fn the_driver_reads_its_settings() {
    let (_, cases) = everything();
    for case in &cases {
        let config = driver_config(case);
        assert_eq!(config.job.name, case.job.owner.name);
        assert_eq!(config.job.uid, case.job.owner.uid);
        assert_eq!(config.job.attempt, 1);
        assert_eq!(config.router_url, "http://127.0.0.1:8081");
        assert_eq!(config.status_listen, "0.0.0.0:8090");
    }
}

/// The router may know fewer engines when the driver starts, and what is in flight is bounded by their number.
#[test]
fn the_driver_knows_how_many_engines_its_pool_will_have() {
    let (_, cases) = everything();
    for case in &cases {
        let pool = &case.pool;
        let expected = match &pool.external {
            None => Some(i64::from(pool.replicas)),
            Some(external) if external.urls.is_empty() => None,
            Some(external) => i64::try_from(external.urls.len()).ok(),
        };
        let settings = driver_settings(case);
        assert_eq!(
            settings["engines"].as_i64(),
            expected,
            "{}",
            case.job.owner.name
        );
        driver_config(case);
    }
}

#[test]
fn paths_of_the_settings_are_mounted() {
    let (_, cases) = everything();
    for case in &cases {
        let name = &case.job.owner.name;
        let settings = driver_settings(case);
        let driver = case.objects().driver.value;
        let main = container(&driver["spec"], "driver");
        let paths = [
            "ledger_dir",
            "output_dir",
            "dataset_path",
            "dataset_credentials_dir",
            "plugin_socket",
            "control_token_file",
        ];
        for path in paths.iter().filter_map(|field| settings[*field].as_str()) {
            let mounts = main["volumeMounts"].as_array().unwrap();
            let mounted = mounts
                .iter()
                .find(|mount| path.starts_with(mount["mountPath"].as_str().unwrap()));
            let volume_name =
                mounted.unwrap_or_else(|| panic!("{name}: {path} is not mounted"))["name"]
                    .as_str()
                    .unwrap();
            assert!(
                !volume(&driver["spec"], volume_name).is_null(),
                "{name}: {volume_name}"
            );
        }
        assert_eq!(
            settings["termination_message_path"],
            main["terminationMessagePath"]
        );
    }
}

#[test]
fn data_sets_come_from_where_the_spec_says() {
    let settings = driver_settings(&spec_job("everything"));
    assert_eq!(settings["dataset_path"], "/data/dataset/sets/train.jsonl");
    assert_eq!(settings["output_dir"], "/data/output/runs/one/second");
    assert_eq!(settings["tokenizer"], "/data/tokenizer");
    let settings = driver_settings(&spec_job("any-harness"));
    assert_eq!(settings["dataset_path"], "/prompts/train.jsonl");
    assert_eq!(settings["output_dir"], "/samples");
    assert_eq!(settings["tokenizer"], Value::Null);
    let own = spec_job("own-pool");
    assert_eq!(
        driver_config(&own).tokenizer,
        Some(TokenizerSource::Builtin)
    );
    assert_eq!(
        driver_settings(&own)["dataset_path"],
        "/data/dataset/train.jsonl"
    );
    let driver = own.objects().driver.value;
    assert_eq!(
        volume(&driver["spec"], "dataset")["configMap"]["items"],
        json!([{"key": "train.jsonl", "path": "train.jsonl"}])
    );
}

#[test]
fn what_is_behind_a_url_is_the_drivers_to_fetch_with_the_secrets_keys() {
    let mut case = spec_job("own-pool");
    case.job.spec["dataset"] = json!({"url": "https://hub.example/train.jsonl?signature=x"});
    let settings = driver_settings(&case);
    assert_eq!(settings["dataset_path"], Value::Null);
    assert_eq!(settings["dataset_credentials_dir"], Value::Null);
    case.job.spec["dataset"]["secretRef"] = json!({"name": "hub"});
    let settings = driver_settings(&case);
    let place = "/etc/rollout/dataset-credentials";
    assert_eq!(settings["dataset_credentials_dir"], place);
    let driver = case.objects().driver.value;
    let mounted = mount(container(&driver["spec"], "driver"), place);
    assert_eq!(mounted["readOnly"], true);
    let name = mounted["name"].as_str().unwrap();
    assert_eq!(
        volume(&driver["spec"], name)["secret"],
        json!({"secretName": "hub"})
    );
    let config = driver_config(&case);
    assert_eq!(
        config.dataset_credentials_dir.unwrap().to_str(),
        Some(place)
    );
    // Nobody else has them.
    for sidecar in driver["spec"]["initContainers"].as_array().unwrap() {
        assert!(!sidecar.to_string().contains(name), "{sidecar}");
    }
}

#[test]
fn files_that_nothing_is_mounted_for_are_refused() {
    let mut job = spec_job("any-harness");
    job.job.spec["output"]["url"] = json!("file:///samples2/run");
    let refused = job.refusal();
    assert_eq!(refused.reason(), "InvalidSpec");
    assert!(
        refused
            .to_string()
            .starts_with("spec.output.url: nothing is mounted at /samples2/run"),
        "{refused}"
    );
    let mut job = spec_job("any-harness");
    job.job.spec["driver"] = json!({});
    assert!(
        job.refusal()
            .to_string()
            .starts_with("spec.dataset.url: nothing is mounted at /prompts/train.jsonl")
    );
}

#[test]
fn the_router_reads_its_settings() {
    let (_, cases) = everything();
    for case in &cases {
        let settings = router_settings(case);
        assert_eq!(settings["agentsListen"], "0.0.0.0:8080");
        // Without a way in from outside of the Pod.
        assert_eq!(settings["controlListen"], "127.0.0.1:8081");
        assert_eq!(settings["job"], json!(case.job.owner.name));
        let engines: Vec<String> =
            serde_json::from_value(settings["engines"].clone()).unwrap_or_default();
        drop(Config::new(&engines));
        assert_ne!(
            engines.is_empty(),
            settings["engineService"].is_null(),
            "{settings}"
        );
    }
    let settings = router_settings(&spec_job("everything"));
    assert_eq!(
        settings["engineService"],
        "sglang.serving.svc.cluster.local:30000"
    );
    assert_eq!(settings["engineKeyFile"], "/etc/rollout/engine-key/key");
    assert_eq!(
        settings["advertiseUrl"],
        "http://everything-sessions.rl.svc.cluster.local:8080"
    );
    let settings = router_settings(&spec_job("any-harness"));
    assert_eq!(
        settings["engineService"],
        "from-image-engines.rl.svc.cluster.local:30000"
    );
}

#[test]
fn a_key_does_not_leave_its_namespace() {
    let mut job = spec_job("any-harness");
    job.pool = super::spec_pool("from-claim").pool_spec();
    let refused = job.refusal();
    assert_eq!(refused.reason(), "NotSupported");
    assert!(
        refused.to_string().starts_with("spec.poolRef.namespace"),
        "{refused}"
    );
}

#[test]
fn sidecars_start_in_order_and_outlive_crashes() {
    let driver = spec_job("everything").objects().driver.value;
    let spec = &driver["spec"];
    let first: Vec<_> = spec["initContainers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(first, ["shim", "router", "plugins"]);
    for sidecar in ["router", "plugins"] {
        assert_eq!(container(spec, sidecar)["restartPolicy"], "Always");
    }
    assert!(container(spec, "shim").get("restartPolicy").is_none());
    assert_eq!(spec["restartPolicy"], "OnFailure");
    assert_eq!(
        container(spec, "router")["startupProbe"]["httpGet"]["path"],
        "/health"
    );
}

#[test]
fn the_plugin_host_runs_in_the_users_image_with_our_program() {
    let case = spec_job("everything");
    let driver = case.objects().driver.value;
    let plugins = container(&driver["spec"], "plugins");
    assert_eq!(plugins["image"], "python:3.13-slim");
    let program = plugins["command"][0].as_str().unwrap();
    let installed = container(&driver["spec"], "shim");
    let directory = arguments(installed)[2];
    assert!(program.starts_with(directory), "{program}");
    assert_eq!(
        mount(plugins, directory)["name"],
        mount(installed, directory)["name"]
    );
    assert_eq!(mount(plugins, directory)["readOnly"], true);
    let socket = driver_settings(&case)["plugin_socket"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(arguments(plugins).contains(&format!("--socket={socket}").as_str()));
    assert!(arguments(plugins).contains(&"--code=/code"));
    assert_eq!(env(plugins, "A")["value"], "b");
    // Fields of plugins.container are merged.
    assert_eq!(plugins["livenessProbe"]["periodSeconds"], 30);
    assert_eq!(plugins["resources"], json!({"requests": {"cpu": "500m"}}));
    let without = spec_job("own-pool").objects().driver.value;
    assert!(container(&without["spec"], "shim").is_null());
}

#[test]
fn what_plugins_want_in_vain_is_said_with_their_path() {
    let mut case = spec_job("everything");
    case.job.spec["plugins"]["container"] = json!({"args": ["x"], "restartPolicy": "Never"});
    let overruled = case.objects().overruled;
    assert_eq!(
        overruled,
        [
            "spec.plugins.container.args",
            "spec.plugins.container.restartPolicy"
        ]
    );
}

#[test]
fn the_ladder_fits_into_the_grace_period() {
    let (_, mut cases) = everything();
    for drain in [0, 60, 7200] {
        for case in &mut cases {
            case.job.spec["teardown"] = json!({"drainSeconds": drain, "abortHookSeconds": 45});
            let ladder = engine_config(&driver_config(case), 1, 1).ladder;
            let margin = Duration::from_secs(2);
            let rungs: Duration = [
                ladder.fence,
                ladder.abort,
                ladder.hook.unwrap_or_default(),
                ladder.drain,
                ladder.second_abort,
                ladder.collect,
                ladder.release,
                ladder.prove,
            ]
            .into_iter()
            .map(|rung| rung + margin)
            .sum();
            // The last word, and the router's 10 s after it.
            let needed = rungs + Duration::from_secs(20);
            let driver = case.objects().driver.value;
            let grace = driver["spec"]["terminationGracePeriodSeconds"]
                .as_u64()
                .unwrap();
            assert!(
                Duration::from_secs(grace) >= needed,
                "{grace} s, {needed:?}"
            );
            assert!(
                Duration::from_secs(grace) <= needed + Duration::from_secs(40),
                "{grace} s, {needed:?}"
            );
        }
    }
}

#[test]
fn its_pod_is_named_by_attempt_and_held_for_its_last_word() {
    let case = spec_job("everything");
    let objects = case.with(4, job::build).unwrap();
    let driver = &objects.driver;
    assert_eq!(driver.name(), "everything-driver-4");
    assert_eq!(driver.label(labels::ATTEMPT), Some("4"));
    assert_eq!(driver.label(labels::POOL), Some("outside"));
    assert_eq!(
        driver.value["metadata"]["finalizers"],
        json!([finalizers::LAST_WORD])
    );
    assert_eq!(
        driver.annotation(annotations::ARGO_IGNORE_RESTART_POLICY),
        Some("true")
    );
    assert_eq!(driver.annotation(annotations::SAFE_TO_EVICT), Some("false"));
    assert_eq!(objects.settings.name(), "everything-driver-4");
    assert_eq!(
        volume(&driver.value["spec"], "settings")["configMap"]["name"],
        "everything-driver-4"
    );
    // Other attempts have other tokens.
    assert_ne!(
        objects.secret.value["data"],
        case.objects().secret.value["data"]
    );
}

#[test]
fn the_template_is_merged() {
    let driver = spec_job("everything").objects().driver.value;
    assert_eq!(driver["spec"]["priorityClassName"], "high");
    let main = container(&driver["spec"], "driver");
    let expected = json!({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}});
    assert_eq!(main["resources"], expected);
}

#[test]
fn a_ledger_that_outlives_the_node_is_a_claim() {
    let objects = spec_job("everything").objects();
    let claim = objects.ledger.unwrap();
    assert_eq!(claim.name(), "everything-ledger");
    assert_eq!(claim.label("team"), Some("rl"));
    assert_eq!(
        claim.value["spec"]["resources"]["requests"]["storage"],
        "10Gi"
    );
    assert_eq!(
        volume(&objects.driver.value["spec"], "ledger")["persistentVolumeClaim"]["claimName"],
        "everything-ledger"
    );
    let objects = spec_job("own-pool").objects();
    assert!(objects.ledger.is_none());
    assert_eq!(
        volume(&objects.driver.value["spec"], "ledger")["emptyDir"],
        json!({})
    );
}

#[test]
fn agents_reach_a_router_whose_driver_is_in_back_off() {
    let objects = spec_job("everything").objects();
    let spec = &objects.service.value["spec"];
    assert_eq!(spec["publishNotReadyAddresses"], true);
    for (name, value) in spec["selector"].as_object().unwrap() {
        assert_eq!(objects.driver.label(name), value.as_str());
    }
}

#[test]
fn the_settings_leave_out_what_only_the_controller_reads() {
    let (_, cases) = everything();
    for case in &cases {
        let spec = driver_settings(case)["spec"].clone();
        for gone in [
            "/pool",
            "/driver",
            "/plugins/container",
            "/generate/agentic/agent/function/template",
        ] {
            assert!(spec.pointer(gone).is_none(), "{gone}");
        }
    }
}

#[test]
fn a_pool_of_the_jobs_own_knows_its_data_set_and_follows_its_suspension() {
    let case = spec_job("own-pool");
    let pool = case.own_pool.as_ref().unwrap();
    assert_eq!(
        (pool.name(), pool.label(labels::JOB)),
        ("own-pool", Some("own-pool"))
    );
    let spec = &pool.value["spec"];
    assert_eq!(spec["suspend"], true);
    let known = &spec["engine"]["simulator"]["replies"]["oracle"]["dataset"];
    assert_eq!(
        known,
        &json!({"configMap": {"name": "prompts", "key": "train.jsonl"}, "promptKey": "question", "labelKey": "answer"})
    );
    let as_resource = super::Resource::of(&pool.value).unwrap();
    assert!(as_resource.pool_objects().is_ok());
    assert!(spec_job("everything").own_pool.is_none());
}

#[test]
fn tokenizer_files_of_another_namespace_are_refused_where_the_driver_needs_them() {
    let mut job = spec_job("own-pool");
    job.pool = super::spec_pool("outside").pool_spec();
    job.pool.external.as_mut().unwrap().api_key_secret_ref = None;
    assert_eq!(driver_settings(&job)["tokenizer"], "/data/tokenizer");
    job.pool_namespace = "serving".to_owned();
    let refused = job.refusal();
    assert_eq!(refused.reason(), "NotSupported");
    assert!(
        refused
            .to_string()
            .contains("tokenizer files of a pool of another namespace"),
        "{refused}"
    );
}

#[test]
fn cas_of_engines_are_mounted_and_stay_in_their_namespace() {
    let mut job = spec_job("own-pool");
    job.pool = serde_json::from_value(json!({
        "external": {"urls": ["https://a"], "tls": {"caConfigMapKeyRef": {"name": "ca", "key": "ca.crt"}}},
        "tokenizer": {"configMap": {"name": "files"}},
    }))
    .unwrap();
    job.pool_namespace = job.job.owner.namespace.clone();
    let objects = job.objects();
    let file = "/etc/rollout/engine-ca/ca.crt";
    let settings = objects.settings.value["data"]["router.yaml"]
        .as_str()
        .unwrap();
    assert!(
        settings.contains(&format!("engineCaFile: {file}")),
        "{settings}"
    );
    let pod = objects.driver.value["spec"].to_string();
    assert!(pod.contains("/etc/rollout/engine-ca"), "{pod}");
    job.pool_namespace = "serving".to_owned();
    // Of those there is a test of its own.
    job.pool.tokenizer = None;
    let refused = job.refusal().to_string();
    assert!(
        refused.contains("whose engines have a CA of their own"),
        "{refused}"
    );
}
