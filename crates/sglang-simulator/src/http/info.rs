//! What the server says about itself.

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::App;
use super::reply;
use crate::replies::Output;

/// The version of SGLang whose wire this is.
pub(super) const VERSION: &str = "0.5.23";

/// Arguments of a real server, with their order; what this one knows better is written over them.
const SERVER_ARGS: &str = include_str!("data/server_args.json");

const EMBEDDING: &str = include_str!("data/embedding.json");

fn object(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap_or_default()
}

/// `/v1/models`.
pub(super) fn models(app: &App) -> Response {
    reply::ok(
        &json!({"object": "list", "data": [card(app, &app.engine.identity().served_model_name)]}),
    )
}

/// `/v1/models/{model}`.
pub(super) fn model(app: &App, path: &str) -> Response {
    let name = path.strip_prefix("/v1/models/").unwrap_or_default();
    if name == app.engine.identity().served_model_name {
        return reply::ok(&card(app, name));
    }
    let error = json!({"error": {
        "message": format!("The model '{name}' does not exist"),
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }});
    reply::json_of(http::StatusCode::NOT_FOUND, &error)
}

fn card(app: &App, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.created(),
        "owned_by": "sglang",
        "root": name,
        "parent": null,
        "max_model_len": app.context_length(),
    })
}

/// `/model_info`.
pub(super) fn model_info(app: &App) -> Response {
    let identity = app.engine.identity();
    reply::ok(&json!({
        "model_path": identity.model_path,
        "served_model_name": identity.served_model_name,
        "tokenizer_path": app.config.server.model_path,
        "is_generation": true,
        "preferred_sampling_params": null,
        "weight_version": identity.version,
        "load_format": "auto",
        "reasoning_parser": app.config.server.reasoning_parser,
        "tool_call_parser": tool_call_parser(app),
        "disaggregation_mode": "null",
        "has_image_understanding": false,
        "has_audio_understanding": false,
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "embedding": object(EMBEDDING),
    }))
}

/// SGLang names the parser's family.
fn tool_call_parser(app: &App) -> Option<&str> {
    match app.config.server.tool_call_parser.as_deref() {
        Some("qwen25") => Some("qwen"),
        other => other,
    }
}

/// `/server_info`: every argument, and the state of the scheduler.
pub(super) fn server_info(app: &App) -> Response {
    let args = arguments(app);
    let load = app.engine.load();
    let mut startup = startup_time();
    let of_scheduler = startup.clone();
    startup["tokenizer_e2e"] = 0.0.into();
    let mut state = args.clone();
    state.shift_remove("custom_sigquit_handler");
    state.insert("disable_chunked_prefix_cache".into(), true.into());
    state.insert(
        "pp_max_micro_batch_size".into(),
        app.config.max_running_requests.into(),
    );
    state.insert(
        "disaggregation_decode_retraction_backup".into(),
        "cpu_tensor".into(),
    );
    state.extend(object(
        &json!({
            "world_size": 1,
            "startup_time": of_scheduler,
            "effective_max_running_requests_per_dp": app.config.max_running_requests,
            "last_gen_throughput": load.throughput,
            "memory_usage": {
                "weight": 0.0,
                "kvcache": 0.0,
                "startup_available": 0.0,
                "token_capacity": app.config.kv_cache_tokens,
                "token_capacity_swa": null,
                "graph": graph_times(),
            },
            "decode_cuda_graph_bs": [],
            "decode_cuda_graph_memory_gb": 0.0,
        })
        .to_string(),
    ));
    let mut info = args;
    info.extend(object(
        &json!({
            "launch_command": launch_command(app),
            "status": "ready",
            "max_total_num_tokens": app.config.kv_cache_tokens,
            "max_req_input_len": app.max_prompt(),
            "startup_time": startup,
            "hicache_object_layout": {
                "enabled": false,
                "backend": null,
                "page_size": 1,
                "hicache_object_layout": {"pools": []},
                "reason": "Hierarchical cache is disabled",
            },
            "kv_events": null,
            "internal_states": [state],
            "version": VERSION,
            "frontend": "python",
        })
        .to_string(),
    ));
    reply::ok(&info)
}

fn arguments(app: &App) -> Map<String, Value> {
    let (config, server) = (&app.config, &app.config.server);
    let identity = app.engine.identity();
    let queued = Some(config.max_queued_requests).filter(|limit| *limit > 0);
    let mut args = object(SERVER_ARGS);
    let known: [(&str, Value); 15] = [
        ("model_path", identity.model_path.into()),
        ("tokenizer_path", server.model_path.clone().into()),
        ("context_length", server.context_length.into()),
        ("max_running_requests", config.max_running_requests.into()),
        ("max_queued_requests", queued.into()),
        ("max_total_tokens", config.kv_cache_tokens.into()),
        ("random_seed", config.seed.into()),
        ("host", server.host.clone().into()),
        ("port", server.port.into()),
        ("served_model_name", identity.served_model_name.into()),
        ("weight_version", identity.version.into()),
        ("reasoning_parser", server.reasoning_parser.clone().into()),
        ("tool_call_parser", tool_call_parser(app).into()),
        ("enable_memory_saver", server.memory_saver.into()),
        ("device", "cpu".into()),
    ];
    for (name, value) in known {
        args.insert(name.into(), value);
    }
    args
}

fn launch_command(app: &App) -> String {
    let server = &app.config.server;
    let name = server
        .served_model_name
        .as_ref()
        .unwrap_or(&server.model_path);
    format!(
        "--model-path {} --served-model-name {name} --host {} --port {} --context-length {} --simulated",
        server.model_path, server.host, server.port, server.context_length
    )
}

fn startup_time() -> Value {
    json!({
        "load_weight": 0.0,
        "kv_cache_allocation": 0.0,
        "scheduler_e2e": 0.0,
        "cuda_graph": graph_times(),
    })
}

fn graph_times() -> Value {
    json!({
        "prefill": 0.0, "decode": 0.0, "target_verify": 0.0, "draft_prefill": 0.0, "draft_decode": 0.0, "draft_extend": 0.0,
    })
}

impl App {
    /// `created` of answers: now, in seconds since 1970.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole seconds"
    )]
    pub(crate) fn created(&self) -> u64 {
        self.engine.clock.unix(self.engine.clock.now()) as u64
    }

    /// Whether reasoning is told apart from content.
    pub(crate) fn separates_reasoning(&self) -> bool {
        self.config.server.reasoning_parser.is_some()
    }

    /// Whether anything looks through the text of a chat.
    pub(crate) fn has_parser(&self) -> bool {
        let server = &self.config.server;
        server.reasoning_parser.is_some() || server.tool_call_parser.is_some()
    }

    /// Tokens of the first `generated` that are reasoning, as far as a parser is there to tell.
    pub(crate) fn reasoning_tokens(&self, output: &Output, generated: usize) -> usize {
        if !self.separates_reasoning() {
            return 0;
        }
        output.reasoning().min(generated)
    }
}
