//! The Pod of one engine: the engine, and its sidecar, which drains it.
//!
//! Deletion: the engine's preStop hook asks the sidecar to drain, which waits until the engine has nothing left or the drain's time is over;
//! then the engine gets SIGTERM, then the sidecar. All of it fits into the grace period.

use serde_json::{Map, Value, json};

use super::model::{self, ModelFiles};
use super::{ENGINE_PORT, PoolInput, SIDECAR_PORT, flags, simulator, tokenizer};
use crate::api::meta::annotations;
use crate::api::pool::Engine;
use crate::api::values::SecretKeyRef;
use crate::resources::labels::{self, Component};
use crate::resources::overlay::{self, Layer, Overlaid, PodParts};
use crate::resources::probes::{self, Pace};
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Refusal, names, quantity, security};

/// The engine's container.
pub const ENGINE: &str = "engine";
/// SIGTERM to the end: SGLang gives its memory back within 15 s, and the sidecar ends after it.
const AFTER_DRAIN: i32 = 45;
/// What outlives the engine's container.
const KEPT: &str = "/var/lib/rollout";
/// Pause between two start-up probes of a real engine: `/health` itself takes a second.
const STARTUP_PERIOD: i32 = 10;

pub(super) fn build(
    input: PoolInput<'_>,
    engine: &Engine,
    revision: &str,
) -> Result<Overlaid, Refusal> {
    let part = match &engine.simulator {
        None => real(input, engine)?,
        Some(_) => simulated(input, engine)?,
    };
    let layers: Vec<Layer<'_>> = engine
        .template
        .iter()
        .map(|template| Layer {
            at: "spec.engine.template",
            template,
        })
        .collect();
    let mut annotations = Map::new();
    labels::set(&mut annotations, annotations::SAFE_TO_EVICT, "false");
    let mut pod = overlay::pod(
        parts(input, engine, part, annotations),
        &layers,
        input.rendering,
    );
    pod.metadata["annotations"][annotations::REVISION] = json!(revision);
    size_of_shared_memory(engine, &mut pod.spec);
    security::allow_chosen_root(&mut pod.spec);
    security::no_credentials(&pod.spec, security::Trust::Ours, "spec.engine.template")?;
    Ok(pod)
}

/// What differs between a real and a simulated engine.
struct Part {
    /// Fields of the container that a template may change.
    container: Value,
    /// Its arguments.
    arguments: Vec<String>,
    /// GPUs, as `limits` and `requests` have them.
    resources: Value,
    /// Its own environment.
    env: Vec<Value>,
    mounts: Vec<Mounted>,
    pod: Value,
    startup_period: i32,
    /// What the sidecar can read files of the model from.
    files: ModelFiles,
}

fn real(input: PoolInput<'_>, engine: &Engine) -> Result<Part, Refusal> {
    let Some(model) = &input.spec.model else {
        return Err(Refusal::invalid(
            "spec.model",
            "an engine must know what to serve: set model.path",
        ));
    };
    let files = model::files(model);
    let mut mounts: Vec<Mounted> = files.mounted.iter().cloned().collect();
    let mut env = files.env.clone();
    mounts.push(Mounted::writable(
        "shared-memory",
        "/dev/shm",
        json!({"emptyDir": {"medium": "Memory"}}),
    ));
    if let Some(cache) = &engine.jit_cache {
        const CACHE: &str = "/jit-cache";
        mounts.push(Mounted::writable(
            "jit-cache",
            CACHE,
            volumes::claim(&cache.claim_name),
        ));
        for (variable, directory) in [
            ("SGLANG_DG_CACHE_DIR", "deep-gemm"),
            ("DG_JIT_CACHE_DIR", "deep-gemm"),
            ("TRITON_CACHE_DIR", "triton"),
            ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            ("FLASHINFER_WORKSPACE_BASE", "flashinfer"),
        ] {
            env.push(json!({"name": variable, "value": format!("{CACHE}/{directory}")}));
        }
    }
    let chat_template = engine.chat_template.as_ref().map(|template| {
        const DIRECTORY: &str = "/etc/rollout/chat-template";
        let reference = &template.config_map_key_ref;
        let source = volumes::config_map_keys(&reference.name, &[&reference.key]);
        let mounted = Mounted::read_only("chat-template", DIRECTORY, source);
        mounts.push(mounted.clone());
        (mounted, format!("{DIRECTORY}/{}", reference.key))
    });
    let template_file = chat_template.as_ref().map(|(_, file)| file.as_str());
    let gpu = engine.gpu_resource.as_deref().unwrap_or("nvidia.com/gpu");
    let gpus = engine.gpus_per_node.unwrap_or(1);
    Ok(Part {
        container: json!({"image": engine.image, "command": flags::SGLANG}),
        arguments: flags::sglang(engine, model, &files, template_file),
        resources: json!({gpu: gpus.to_string()}),
        env,
        mounts,
        pod: json!({"tolerations": [{"key": gpu, "operator": "Exists", "effect": "NoSchedule"}]}),
        startup_period: STARTUP_PERIOD,
        files: ModelFiles {
            chat_template,
            ..files
        },
    })
}

fn simulated(input: PoolInput<'_>, engine: &Engine) -> Result<Part, Refusal> {
    let unused = [
        ("apiKeySecretRef", engine.api_key_secret_ref.is_some()),
        ("chatTemplate", engine.chat_template.is_some()),
        ("extraArgs", !engine.extra_args.is_empty()),
    ];
    if let Some((field, _)) = unused.iter().find(|(_, is_set)| *is_set) {
        let problem = format!("a simulated engine has none: remove {field}, or set image");
        return Err(Refusal::invalid(format!("spec.engine.{field}"), problem));
    }
    let settings = engine.simulator.clone().unwrap_or_default();
    let mut mounts = simulator::mounts(&input.owner.name, &settings);
    let mut files = ModelFiles::default();
    if let Some((mounted, directory)) = tokenizer::mounted(input.spec) {
        mounts.push(mounted.clone());
        files.directory = Some(directory);
        files.mounted = Some(mounted);
    }
    let gpus = engine.gpus_per_node.unwrap_or(0);
    let resources = match &engine.gpu_resource {
        Some(gpu) if gpus > 0 => json!({gpu: gpus.to_string()}),
        _ => json!({}),
    };
    Ok(Part {
        container: json!({
            "image": input.rendering.image,
            "securityContext": security::own_container(),
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }),
        arguments: simulator::arguments(),
        resources,
        env: Vec::new(),
        mounts,
        pod: json!({"securityContext": security::pod()}),
        startup_period: 1,
        files,
    })
}

fn parts(
    input: PoolInput<'_>,
    engine: &Engine,
    part: Part,
    annotations: Map<String, Value>,
) -> PodParts {
    let sidecar = sidecar(input, engine, &part);
    let Part {
        container,
        arguments,
        resources,
        env,
        mounts,
        pod,
        startup_period,
        files: _,
    } = part;
    let (volumes, volume_mounts) = volumes::split(mounts);
    let default = json!({
        "name": ENGINE,
        "env": env,
        "volumeMounts": volume_mounts,
        // Why it ends, a model that it does not get, say, is at the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        // Long enough for the largest model; a probe of one second would fail a healthy engine, whose /health takes longer. The sidecar asks
        // that, and has an engine that begins again load its checkpoint.
        "startupProbe": probes::http(SIDECAR_PORT, "/started", Pace {
            period: startup_period,
            timeout: 10,
            failures: (engine.startup_timeout_seconds / startup_period).max(1),
        }),
        // Passes while weights are updated; /health would fail a paused engine and mark it as unhealthy.
        "readinessProbe": probes::http(ENGINE_PORT, "/ping", Pace { period: 5, timeout: 5, failures: 3 }),
        // A busy or paused engine accepts connections.
        "livenessProbe": probes::tcp(ENGINE_PORT, Pace { period: 30, timeout: 5, failures: 5 }),
    });
    let mut defaults = json!({"containers": [default], "volumes": volumes});
    defaults = overlay::merge(defaults, &json!({"containers": [with_name(container)]}));
    // The user's variables replace ours of the same name: a server-side apply refuses a name that is there twice.
    defaults = overlay::merge(
        defaults,
        &json!({"containers": [{"name": ENGINE, "env": engine.env}]}),
    );
    defaults = overlay::merge(defaults, &pod);
    let mut owned = json!({
        "name": ENGINE,
        "args": arguments,
        "ports": [{"name": "http", "containerPort": ENGINE_PORT, "protocol": "TCP"}],
        "lifecycle": {"preStop": {"httpGet": {"path": "/drain", "port": SIDECAR_PORT, "scheme": "HTTP"}}},
    });
    if resources.as_object().is_some_and(|gpus| !gpus.is_empty()) {
        owned["resources"] = json!({"limits": resources, "requests": resources});
    }
    if let Some(key) = &engine.api_key_secret_ref {
        owned["env"] = json!([key_variable(key)]);
    }
    PodParts {
        labels: labels::of_pod(input.owner, Some(Component::Engine)),
        annotations,
        defaults,
        owned: json!({
            "serviceAccountName": names::account(&input.owner.name),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Always",
            "volumes": [kept().volume],
            "terminationGracePeriodSeconds": engine.drain_timeout_seconds.saturating_add(AFTER_DRAIN),
            "initContainers": [sidecar],
            "containers": [owned],
        }),
    }
}

fn key_variable(key: &SecretKeyRef) -> Value {
    let SecretKeyRef { name, key } = key;
    json!({"name": flags::KEY_VARIABLE, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}})
}

fn with_name(mut container: Value) -> Value {
    container["name"] = json!(ENGINE);
    container
}

fn sidecar(input: PoolInput<'_>, engine: &Engine, part: &Part) -> Value {
    let mut arguments = vec![
        "engine-sidecar".to_owned(),
        format!("--engine=http://127.0.0.1:{ENGINE_PORT}"),
        format!("--listen=0.0.0.0:{SIDECAR_PORT}"),
        format!("--drain-seconds={}", engine.drain_timeout_seconds),
        format!("--weights-dir={KEPT}"),
        format!(
            "--peers={}:{SIDECAR_PORT}",
            input
                .rendering
                .service_host(&names::engines(&input.owner.name), &input.owner.namespace)
        ),
        format!("--load-seconds={}", engine.startup_timeout_seconds),
    ];
    let mut mounts = vec![kept().mount];
    if let Some(mounted) = &part.files.mounted {
        match &part.files.directory {
            Some(directory) => arguments.push(format!("--model-dir={directory}")),
            None => arguments.extend(part.files.in_hub_cache(input.spec.model.as_ref())),
        }
        mounts.push(mounted.read_only_mount());
        if let Some((mounted, file)) = &part.files.chat_template {
            arguments.push(format!("--chat-template={file}"));
            mounts.push(mounted.read_only_mount());
        }
    }
    let mut env = Vec::new();
    if let Some(key) = &engine.api_key_secret_ref {
        arguments.push(format!("--engine-key-env={}", flags::KEY_VARIABLE));
        env.push(key_variable(key));
    }
    let context = match engine.simulator {
        None => security::own_container_and_user(),
        Some(_) => security::own_container(),
    };
    json!({
        "name": "sidecar",
        "image": input.rendering.image,
        "args": arguments,
        "restartPolicy": "Always",
        "env": env,
        "ports": [{"name": "state", "containerPort": SIDECAR_PORT, "protocol": "TCP"}],
        "securityContext": context,
        "volumeMounts": mounts,
    })
}

/// Where the sidecar notes what was loaded into the engine.
fn kept() -> Mounted {
    Mounted::writable("engine-weights", KEPT, volumes::empty_dir())
}

/// The size of `/dev/shm`: as the spec says, else half of the memory limit, else the node's default.
fn size_of_shared_memory(engine: &Engine, spec: &mut Value) {
    let limit = spec["containers"].as_array().and_then(|containers| {
        let engine = containers.iter().find(|one| one["name"] == ENGINE)?;
        quantity::half(engine["resources"]["limits"]["memory"].as_str()?)
    });
    let wanted = engine.shared_memory.as_ref().map(|size| size.0.clone());
    let Some(size) = wanted.or(limit) else {
        return;
    };
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    let volumes = volumes.into_iter().flatten();
    for volume in volumes.filter(|volume| volume["name"] == "shared-memory") {
        if volume["emptyDir"]["medium"] == "Memory" && volume["emptyDir"]["sizeLimit"].is_null() {
            volume["emptyDir"]["sizeLimit"] = json!(size);
        }
    }
}
