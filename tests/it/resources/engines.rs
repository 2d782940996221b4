//! What the Pod of an engine must get right: each of these is a defect that people met in production (CRDS, "what the rendered engine pod must get
//! right").

use rollout_operator::api::meta::annotations;
use rollout_operator::resources::Refusal;
use serde_json::{Value, json};

use super::{Resource, a_pool, arguments, container, env, mount, rendering, spec_pool, volume};

fn deployment(pool: &Resource) -> Value {
    let engines = pool.pool_objects().unwrap().engines.unwrap();
    engines.deployment.value
}

fn pod(pool: &Resource) -> Value {
    deployment(pool)["spec"]["template"]["spec"].clone()
}

const POOLS: [&str; 4] = ["from-claim", "from-image", "from-hub", "simulated"];

fn every_pod(check: impl Fn(&Value, &Value)) {
    for name in POOLS {
        let pod = pod(&spec_pool(name));
        check(&pod, container(&pod, "engine"));
    }
}

fn real(more: &Value) -> Resource {
    let mut engine = json!({"image": "sglang:1"});
    for (key, value) in more.as_object().unwrap() {
        engine[key] = value.clone();
    }
    a_pool(&json!({"model": {"path": "m"}, "engine": engine}))
}

#[test]
fn listens_where_other_pods_reach_it() {
    every_pod(|_, engine| {
        let arguments = arguments(engine);
        assert!(arguments.contains(&"--host=0.0.0.0"), "{arguments:?}");
        assert!(arguments.contains(&"--port=30000"), "{arguments:?}");
    });
}

#[test]
fn services_set_none_of_its_variables() {
    every_pod(|pod, _| assert_eq!(pod["enableServiceLinks"], false));
}

#[test]
fn has_shared_memory_in_memory() {
    for (name, size) in [("from-claim", "33280Mi"), ("from-image", "16Gi")] {
        let pod = pod(&spec_pool(name));
        let shared = mount(container(&pod, "engine"), "/dev/shm");
        let volume = volume(&pod, shared["name"].as_str().unwrap());
        assert_eq!(
            volume["emptyDir"],
            json!({"medium": "Memory", "sizeLimit": size}),
            "{name}"
        );
    }
    let unlimited = pod(&real(&json!({})));
    assert_eq!(
        volume(&unlimited, "shared-memory")["emptyDir"],
        json!({"medium": "Memory"})
    );
}

#[test]
fn may_start_as_long_as_the_model_needs() {
    let probe = &container(&pod(&spec_pool("from-claim")), "engine")["startupProbe"].clone();
    let longest =
        probe["periodSeconds"].as_i64().unwrap() * probe["failureThreshold"].as_i64().unwrap();
    assert_eq!(longest, 1800);
    let deployment = deployment(&spec_pool("from-claim"));
    assert!(
        deployment["spec"]["progressDeadlineSeconds"]
            .as_i64()
            .unwrap()
            > 1800
    );
}

#[test]
fn no_probe_times_out_after_a_second() {
    every_pod(|_, engine| {
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            let timeout = engine[probe]["timeoutSeconds"].as_i64().unwrap();
            assert!(timeout >= 5, "{probe}: {timeout}");
        }
    });
}

#[test]
fn a_paused_or_busy_engine_is_alive() {
    every_pod(|_, engine| {
        let probe = &engine["livenessProbe"];
        assert_eq!(probe["tcpSocket"]["port"], 30000);
        assert!(probe.get("httpGet").is_none());
    });
}

#[test]
fn nothing_asks_for_health_once_it_has_started() {
    every_pod(|_, engine| {
        assert_eq!(engine["readinessProbe"]["httpGet"]["path"], "/ping");
        assert_eq!(
            engine["startupProbe"]["httpGet"],
            json!({"path": "/started", "port": 30001, "scheme": "HTTP"})
        );
    });
}

#[test]
fn drains_before_it_ends_and_within_its_grace_period() {
    let pod = pod(&spec_pool("from-claim"));
    let hook = &container(&pod, "engine")["lifecycle"]["preStop"]["httpGet"];
    // A port of another container has to be a number.
    assert_eq!(
        hook,
        &json!({"path": "/drain", "port": 30001, "scheme": "HTTP"})
    );
    let sidecar = container(&pod, "sidecar");
    assert_eq!(sidecar["restartPolicy"], "Always");
    assert!(arguments(sidecar).contains(&"--drain-seconds=300"));
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() >= 300 + 30);
    let longest = real(&json!({"drainTimeoutSeconds": 86400}));
    assert!(
        super::engines::pod(&longest)["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap()
            > 86400
    );
}

#[test]
fn replaces_another_one_once_routers_know_it() {
    for name in POOLS {
        let seconds = deployment(&spec_pool(name))["spec"]["minReadySeconds"].as_i64();
        assert!(seconds > Some(2 + 5), "{name}: {seconds:?}");
    }
}

#[test]
fn loads_its_checkpoint_again_when_it_begins_again() {
    for name in POOLS {
        let pod = pod(&spec_pool(name));
        let sidecar = container(&pod, "sidecar");
        let kept = mount(sidecar, "/var/lib/rollout");
        assert_ne!(kept["readOnly"], true);
        let volume = volume(&pod, kept["name"].as_str().unwrap());
        assert_eq!(volume["emptyDir"], json!({}));
        let arguments = arguments(sidecar);
        assert!(arguments.contains(&"--weights-dir=/var/lib/rollout"));
        let peers = format!("--peers={name}-engines.rl.svc.cluster.local:30001");
        assert!(arguments.contains(&peers.as_str()), "{arguments:?}");
        let longest = &container(&pod, "engine")["startupProbe"];
        let longest = longest["periodSeconds"].as_i64().unwrap()
            * longest["failureThreshold"].as_i64().unwrap();
        assert!(
            arguments.contains(&format!("--load-seconds={longest}").as_str()),
            "{arguments:?}"
        );
    }
}

#[test]
fn gpus_are_limits_and_requests_alike() {
    let pod = pod(&spec_pool("from-claim"));
    let resources = &container(&pod, "engine")["resources"];
    assert_eq!(
        resources["limits"],
        json!({"memory": "65Gi", "rdma/hca": 1, "nvidia.com/gpu": "4"})
    );
    assert_eq!(
        resources["requests"],
        json!({"cpu": 8, "nvidia.com/gpu": "4"})
    );
    let other = super::engines::pod(&spec_pool("from-image"));
    assert_eq!(
        container(&other, "engine")["resources"]["limits"],
        json!({"amd.com/gpu": "1"})
    );
    let simulated = super::engines::pod(&spec_pool("simulated"));
    assert!(
        container(&simulated, "engine")["resources"]
            .get("limits")
            .is_none()
    );
}

#[test]
fn a_node_with_gpus_that_refuses_others_takes_it() {
    let tolerations = pod(&spec_pool("from-claim"))["tolerations"].clone();
    assert_eq!(
        tolerations,
        json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, {"key": "spot", "operator": "Exists"}])
    );
}

#[test]
fn holds_no_token_of_an_account() {
    every_pod(|pod, _| {
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert!(
            pod["serviceAccountName"]
                .as_str()
                .unwrap()
                .ends_with("-pool")
        );
    });
    let account = spec_pool("from-claim").pool_objects().unwrap().account;
    assert_eq!(account.value["automountServiceAccountToken"], false);
}

#[test]
fn a_token_as_a_volume_is_refused() {
    let token = |more: Value| {
        let mut source = json!({"path": "token"});
        for (key, value) in more.as_object().unwrap() {
            source[key] = value.clone();
        }
        real(&json!({"template": {"spec": {"containers": [], "volumes": [
            {"name": "sneaky", "projected": {"sources": [{"serviceAccountToken": source}]}},
        ]}}}))
    };
    let refused = token(json!({})).pool_objects().unwrap_err();
    assert!(matches!(refused, Refusal::Invalid { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("spec.engine.template.spec.volumes[sneaky]"),
        "{refused}"
    );
    assert!(
        token(json!({"audience": "sts.amazonaws.com"}))
            .pool_objects()
            .is_ok()
    );
}

#[test]
fn the_cluster_autoscaler_does_not_evict_it() {
    for name in POOLS {
        let template = &deployment(&spec_pool(name))["spec"]["template"];
        assert_eq!(
            template["metadata"]["annotations"][annotations::SAFE_TO_EVICT],
            "false"
        );
    }
}

#[test]
fn flags_are_those_of_the_spec_and_the_users_come_last() {
    let pod = pod(&spec_pool("from-claim"));
    let engine = container(&pod, "engine");
    assert_eq!(
        engine["command"],
        json!(["python3", "-m", "sglang.launch_server"])
    );
    let expected = [
        "--model-path=/models/qwen3/8b",
        "--served-model-name=default",
        "--host=0.0.0.0",
        "--port=30000",
        "--enable-metrics",
        "--tp-size=2",
        "--pp-size=2",
        "--ep-size=2",
        "--context-length=32768",
        "--tool-call-parser=qwen25",
        "--reasoning-parser=qwen3",
        "--chat-template=/etc/rollout/chat-template/chat.jinja",
        "--api-key=$(ROLLOUT_ENGINE_KEY)",
        "--mem-fraction-static=0.85",
    ];
    assert_eq!(arguments(engine), expected);
    let key = json!({"name": "ROLLOUT_ENGINE_KEY", "valueFrom": {"secretKeyRef": {"name": "engine", "key": "key"}}});
    assert_eq!(env(engine, "ROLLOUT_ENGINE_KEY"), &key);
}

#[test]
fn data_parallel_attention_is_spelled_as_every_version_knows_it() {
    let pod = pod(&spec_pool("from-hub"));
    let arguments = arguments(container(&pod, "engine"));
    let split: Vec<_> = arguments
        .iter()
        .filter(|flag| flag.contains("-size") || flag.contains("dp-attention"))
        .collect();
    assert_eq!(
        split,
        [&"--tp-size=4", &"--dp-size=2", &"--enable-dp-attention"]
    );
}

#[test]
fn a_text_is_no_reference_to_a_variable() {
    let pool = a_pool(
        &json!({"model": {"path": "$(HOME)/m", "servedName": "$(X)"}, "engine": {"image": "i"}}),
    );
    let pod = pod(&pool);
    let arguments = arguments(container(&pod, "engine"));
    assert!(
        arguments.contains(&"--model-path=$$(HOME)/m"),
        "{arguments:?}"
    );
    assert!(
        arguments.contains(&"--served-model-name=$$(X)"),
        "{arguments:?}"
    );
}

#[test]
fn a_model_on_a_volume_is_mounted_to_be_read() {
    let pod = pod(&spec_pool("from-claim"));
    for name in ["engine", "sidecar"] {
        let model = mount(container(&pod, name), "/models");
        assert_eq!(
            model,
            &json!({"name": "model", "mountPath": "/models", "readOnly": true, "subPath": "checkpoints"})
        );
    }
    assert_eq!(
        volume(&pod, "model")["persistentVolumeClaim"],
        json!({"claimName": "models", "readOnly": true})
    );
    // The user's word is the last one, on variables that are defaults.
    assert_eq!(
        env(container(&pod, "engine"), "HF_HUB_OFFLINE")["value"],
        "0"
    );
    assert!(arguments(container(&pod, "sidecar")).contains(&"--model-dir=/models/qwen3/8b"));
}

#[test]
fn a_model_in_an_image_is_a_volume() {
    let pod = pod(&spec_pool("from-image"));
    let expected =
        json!({"reference": "registry.example/models/qwen3-8b:1", "pullPolicy": "IfNotPresent"});
    assert_eq!(volume(&pod, "model")["image"], expected);
    assert!(arguments(container(&pod, "engine")).contains(&"--model-path=/models"));
}

#[test]
fn a_model_of_a_hub_is_downloaded_into_its_cache() {
    let pod = pod(&spec_pool("from-hub"));
    let engine = container(&pod, "engine");
    assert_eq!(
        volume(&pod, "model")["persistentVolumeClaim"],
        json!({"claimName": "hf-cache"})
    );
    assert_eq!(env(engine, "HF_HOME")["value"], "/huggingface");
    assert_eq!(env(engine, "HF_ENDPOINT")["value"], "https://hub.example");
    assert_eq!(
        env(engine, "HF_TOKEN")["valueFrom"]["secretKeyRef"],
        json!({"name": "hf", "key": "token"})
    );
    let revision = "--revision=9c925d64d72725edaf899c6cb9c377fd0709d9c5";
    assert!(arguments(engine).contains(&revision));
    // The token is the engine's alone.
    assert!(
        !container(&pod, "sidecar").to_string().contains("hf"),
        "{pod}"
    );
    // Without a claim, what was downloaded outlives a crash of the container.
    let plain = super::engines::pod(&real(&json!({})));
    assert_eq!(
        volume(&plain, "model"),
        &json!({"name": "model", "emptyDir": {}})
    );
}

#[test]
fn compiled_kernels_are_kept() {
    let pod = pod(&spec_pool("from-claim"));
    let engine = container(&pod, "engine");
    assert_eq!(
        volume(&pod, "jit-cache")["persistentVolumeClaim"]["claimName"],
        "jit"
    );
    for variable in [
        "SGLANG_DG_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
    ] {
        let value = env(engine, variable)["value"].as_str().unwrap();
        assert!(value.starts_with("/jit-cache/"), "{variable}: {value}");
    }
}

#[test]
fn simulated_engines_read_their_settings() {
    let pool = spec_pool("simulated");
    let engines = pool.pool_objects().unwrap().engines.unwrap();
    let settings = engines.settings.unwrap();
    let text = settings.value["data"]["config.json"].as_str().unwrap();
    let config: sglang_simulator::Config = serde_json::from_str(text).unwrap();
    assert_eq!(config.seed, 7);
    assert_eq!(config.server.context_length, 4096);
    assert_eq!(config.server.model_path, "Qwen/Qwen3-8B");
    assert_eq!(config.faults.len(), 1);
    let script = config.replies.script.unwrap().path.unwrap();
    let pod = pod(&pool);
    let engine = container(&pod, "engine");
    assert_eq!(arguments(engine)[0], "simulate-engine");
    let directory = script.parent().unwrap().to_str().unwrap();
    assert_eq!(mount(engine, directory)["readOnly"], true);
    assert_eq!(volume(&pod, "script")["configMap"]["name"], "agent-script");
    assert_eq!(engine["image"], rendering().image);
}

#[test]
fn what_a_simulated_engine_does_not_have_is_refused() {
    for (field, value) in [
        ("extraArgs", json!(["--mem-fraction-static=0.8"])),
        ("apiKeySecretRef", json!({"name": "a", "key": "b"})),
        (
            "chatTemplate",
            json!({"configMapKeyRef": {"name": "a", "key": "b"}}),
        ),
    ] {
        let refused = a_pool(&json!({"engine": {"simulator": {}, field: value}}))
            .pool_objects()
            .unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with(&format!("spec.engine.{field}: ")),
            "{refused}"
        );
        assert_eq!(refused.reason(), "InvalidSpec");
    }
    let nobody_knows = a_pool(&json!({"engine": {"simulator": {"replies": {"oracle": {}}}}}));
    let refused = nobody_knows.pool_objects().unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("replies.oracle.dataset: a pool does not know which job"),
        "{refused}"
    );
}

#[test]
fn updates_are_as_the_spec_says() {
    let spec = deployment(&spec_pool("from-claim"))["spec"].clone();
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}})
    );
    assert_eq!(spec["replicas"], 3);
    let spec = deployment(&spec_pool("from-image"))["spec"].clone();
    assert_eq!(
        spec["strategy"]["rollingUpdate"],
        json!({"maxSurge": 1, "maxUnavailable": 0})
    );
}

#[test]
fn a_paused_update_holds_up_no_first_roll_out() {
    let pool = spec_pool("from-claim");
    let paused = |live: Option<&Value>| {
        let objects = pool.pool_objects_for(&rendering(), live).unwrap();
        objects.engines.unwrap().deployment.value["spec"]["paused"].clone()
    };
    assert_eq!(paused(None), false);
    let mut live = deployment(&pool);
    assert_eq!(paused(Some(&live)), false);
    live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("1");
    assert_eq!(paused(Some(&live)), true);
}

#[test]
fn a_suspended_pool_has_no_pods() {
    let pool = a_pool(
        &json!({"suspend": true, "replicas": 4, "engine": {"simulator": {}}, "router": {"replicas": 2}}),
    );
    let objects = pool.pool_objects().unwrap();
    assert_eq!(
        objects.engines.unwrap().deployment.value["spec"]["replicas"],
        0
    );
    assert_eq!(
        objects.router.unwrap().deployment.value["spec"]["replicas"],
        0
    );
}

#[test]
fn only_ready_engines_are_in_the_list() {
    let service = spec_pool("from-claim")
        .pool_objects()
        .unwrap()
        .engines
        .unwrap()
        .service;
    assert_eq!(service.name(), "from-claim-engines");
    let spec = &service.value["spec"];
    assert_eq!(spec["clusterIP"], "None");
    assert_eq!(spec["publishNotReadyAddresses"], false);
    assert_eq!(
        spec["ports"][0],
        json!({"name": "http", "port": 30000, "targetPort": 30000, "protocol": "TCP"})
    );
    let deployment = deployment(&spec_pool("from-claim"));
    assert_eq!(
        spec["selector"],
        deployment["spec"]["selector"]["matchLabels"]
    );
}

#[test]
fn evictions_take_one_engine_at_a_time() {
    let budget = spec_pool("from-claim")
        .pool_objects()
        .unwrap()
        .engines
        .unwrap()
        .budget;
    assert_eq!(budget.value["spec"]["maxUnavailable"], 1);
    assert_eq!(
        budget.value["spec"]["unhealthyPodEvictionPolicy"],
        "AlwaysAllow"
    );
}

#[test]
fn another_version_of_the_operator_restarts_no_engine() {
    let pool = spec_pool("from-claim");
    let before = deployment(&pool);
    let mut next = rendering();
    next.image = "registry.example/rollout-operator:2.0.0".to_owned();
    next.version = "2.0.0".to_owned();
    let upgraded = pool
        .pool_objects_for(&next, Some(&before))
        .unwrap()
        .engines
        .unwrap()
        .deployment;
    assert_eq!(
        upgraded.value["spec"]["template"],
        before["spec"]["template"]
    );
    // Drift by hand is not what was recorded, and is repaired.
    let mut edited = before.clone();
    edited["spec"]["template"]["spec"]["nodeSelector"] = json!({"by": "hand"});
    let repaired = pool
        .pool_objects_for(&next, Some(&edited))
        .unwrap()
        .engines
        .unwrap()
        .deployment;
    assert_eq!(
        repaired.value["spec"]["template"],
        before["spec"]["template"]
    );
    // An upgrade twice over is the same.
    let again = pool
        .pool_objects_for(&rendering(), Some(&upgraded.value))
        .unwrap()
        .engines
        .unwrap()
        .deployment;
    assert_eq!(again.value["spec"]["template"], before["spec"]["template"]);
    // A change of the spec is taken, in the form of the new version.
    let mut changed = spec_pool("from-claim");
    changed.spec["engine"]["image"] = json!("lmsysorg/sglang:v0.5.24");
    let taken = changed
        .pool_objects_for(&next, Some(&before))
        .unwrap()
        .engines
        .unwrap()
        .deployment;
    let pod = &taken.value["spec"]["template"]["spec"];
    assert_eq!(container(pod, "engine")["image"], "lmsysorg/sglang:v0.5.24");
    assert_eq!(container(pod, "sidecar")["image"], next.image);
    // So is a change of what does not touch the Pods.
    let mut scaled = spec_pool("from-claim");
    scaled.spec["replicas"] = json!(9);
    let taken = scaled
        .pool_objects_for(&next, Some(&before))
        .unwrap()
        .engines
        .unwrap()
        .deployment;
    assert_eq!(taken.value["spec"]["replicas"], 9);
    assert_eq!(taken.value["spec"]["template"], before["spec"]["template"]);
    // What nobody can read is rendered anew.
    let mut unreadable = before.clone();
    unreadable["metadata"]["annotations"][annotations::TEMPLATE] = json!("{");
    let taken = pool
        .pool_objects_for(&next, Some(&unreadable))
        .unwrap()
        .engines
        .unwrap()
        .deployment;
    assert_eq!(
        container(&taken.value["spec"]["template"]["spec"], "sidecar")["image"],
        next.image
    );
}

#[test]
fn engines_that_run_already_are_left_alone() {
    let objects = spec_pool("outside").pool_objects().unwrap();
    assert!(objects.engines.is_none());
}

#[test]
fn what_no_part_of_the_cluster_acts_on_is_refused() {
    for (field, value, at) in [
        (
            "weights",
            json!({"requiredVersion": "12"}),
            "spec.weights.requiredVersion",
        ),
        (
            "tokenizer",
            json!({"url": "http://files/"}),
            "spec.tokenizer.url",
        ),
        (
            "tokenizer",
            json!({"huggingFace": {}}),
            "spec.tokenizer.huggingFace",
        ),
    ] {
        let pool = a_pool(&json!({"engine": {"simulator": {}}, field: value}));
        let refused = pool.pool_objects().unwrap_err();
        assert_eq!(refused.reason(), "NotSupported");
        assert!(refused.to_string().starts_with(at), "{refused}");
    }
}
