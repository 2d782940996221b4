//! Calls that change the engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::App;
use super::body::{self, Place};
use super::problem::Location;
use super::reply::{self, ApiError};
use super::routes::Control;
use crate::config::Profile;
use crate::engine::PauseMode;

/// Answers `/flush_cache`, with or without a body.
pub(super) async fn flush(app: Arc<App>, request: Request) -> Response {
    let timeout =
        App::query(request.uri().query(), "timeout").and_then(|seconds| seconds.parse().ok());
    let timeout = Duration::try_from_secs_f64(timeout.unwrap_or(0.0)).unwrap_or(Duration::ZERO);
    if app.engine.flush(timeout).await {
        return reply::text(
            StatusCode::OK,
            "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n",
        );
    }
    let problem = if timeout.is_zero() {
        "Flush cache failed.\n"
    } else {
        "Timed out waiting for idle state."
    };
    reply::text(StatusCode::BAD_REQUEST, problem)
}

/// Answers the calls that take a JSON body.
pub(super) async fn handle(app: Arc<App>, call: Control, request: Request) -> Response {
    let bytes = match body::read(request).await {
        Ok(bytes) => bytes,
        Err(error) => return error.into_response(),
    };
    let fields = match place(call).object(&bytes) {
        Ok(fields) => fields,
        Err(error) => return error.into_response(),
    };
    act(&app, call, &fields)
        .await
        .unwrap_or_else(ApiError::into_response)
}

const fn place(call: Control) -> Place {
    let (path, function, line) = match call {
        Control::Abort => ("/abort_request", "abort_request", 0),
        Control::Pause => ("/pause_generation", "pause_generation", 1831),
        Control::Continue => ("/continue_generation", "continue_generation", 1844),
        Control::UpdateFromDisk => ("/update_weights_from_disk", "update_weights_from_disk", 0),
        Control::UpdateFromDistributed => (
            "/update_weights_from_distributed",
            "update_weights_from_distributed",
            0,
        ),
        Control::UpdateFromTensor => (
            "/update_weights_from_tensor",
            "update_weights_from_tensor",
            0,
        ),
        Control::UpdateVersion => ("/update_weight_version", "update_weight_version", 0),
        Control::InitGroup => ("/init_weights_update_group", "init_weights_update_group", 0),
        Control::DestroyGroup => (
            "/destroy_weights_update_group",
            "destroy_weights_update_group",
            0,
        ),
        Control::BeginUpdate => ("/begin_weight_update", "begin_weight_update", 0),
        Control::EndUpdate => ("/end_weight_update", "end_weight_update", 0),
        Control::GetWeights => ("/get_weights_by_name", "get_weights_by_name", 0),
        Control::ReleaseMemory => ("/release_memory_occupation", "release_memory_occupation", 0),
        Control::ResumeMemory => ("/resume_memory_occupation", "resume_memory_occupation", 0),
    };
    Place {
        path,
        function,
        line,
    }
}

async fn act(
    app: &Arc<App>,
    call: Control,
    fields: &Map<String, Value>,
) -> Result<Response, ApiError> {
    match call {
        Control::Abort => Ok(abort(app, fields)),
        Control::Pause => {
            app.engine.pause(pause_mode(fields)?).await;
            Ok(reply::ok(
                &json!({"message": "Generation paused successfully.", "status": "ok"}),
            ))
        }
        Control::Continue => {
            app.engine.resume();
            Ok(reply::ok(
                &json!({"message": "Generation continued successfully.", "status": "ok"}),
            ))
        }
        Control::UpdateFromDisk => update_from_disk(app, fields).await,
        Control::UpdateFromDistributed | Control::UpdateFromTensor => {
            Ok(update_in_place(app, fields).await)
        }
        Control::UpdateVersion => update_version(app, fields),
        Control::InitGroup => Ok(success("Succeeded to initialize custom process group.")),
        Control::DestroyGroup => Ok(success("Succeeded to destroy custom process group.")),
        Control::BeginUpdate | Control::EndUpdate => Ok(success("Success")),
        Control::GetWeights => Err(ApiError::Native("Get parameter by name failed".into())),
        Control::ReleaseMemory | Control::ResumeMemory => memory(app),
    }
}

fn success(message: &str) -> Response {
    reply::ok(&json!({"success": true, "message": message}))
}

fn flag(fields: &Map<String, Value>, name: &str, default: bool) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(default)
}

fn abort(app: &App, fields: &Map<String, Value>) -> Response {
    let rid = fields
        .get("rid")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if flag(fields, "abort_all", false) {
        app.engine.abort_all();
    } else {
        let prefix = app.config.profile == Profile::MilesFork && flag(fields, "prefix", false);
        app.engine.abort(rid, prefix);
    }
    reply::bare(StatusCode::OK)
}

fn pause_mode(fields: &Map<String, Value>) -> Result<PauseMode, ApiError> {
    match fields.get("mode") {
        None => Ok(PauseMode::Abort),
        Some(Value::String(mode)) if mode == "abort" => Ok(PauseMode::Abort),
        Some(Value::String(mode)) if mode == "retract" => Ok(PauseMode::Retract),
        Some(Value::String(mode)) if mode == "in_place" => Ok(PauseMode::InPlace),
        Some(other) => {
            let class = "PauseGenerationReqInput";
            let expected = "'abort', 'retract' or 'in_place'";
            let whole = Value::Object(fields.clone());
            let instance = Location::Body
                .key(&format!("is-instance[{class}]"))
                .problem(
                    "is_instance_of",
                    &format!("Input should be an instance of {class}"),
                    &whole,
                )
                .with_context(&format!("'class': '{class}'"));
            let literal = Location::Body
                .key(&format!("function-after[build_struct(), {class}]"))
                .key("mode")
                .no_literal(expected, other);
            Err(place(Control::Pause).invalid(&[instance, literal]))
        }
    }
}

/// Why no weights could be loaded from a path. There are none to load here: a hub id is believed, a directory counts when it exists
/// or lies beside the model.
fn unloadable(app: &App, path: &str) -> Option<String> {
    let is_hub_id = !path.starts_with('/')
        && (1..=2).contains(&path.split('/').filter(|part| !part.is_empty()).count());
    let beside = Path::new(path).parent() == Path::new(&app.config.server.model_path).parent();
    if is_hub_id || (beside && path.starts_with('/')) || Path::new(path).is_dir() {
        return None;
    }
    Some(format!(
        "Failed to get weights iterator: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. Use `repo_type` argument if needed.."
    ))
}

async fn update_from_disk(
    app: &Arc<App>,
    fields: &Map<String, Value>,
) -> Result<Response, ApiError> {
    let Some(path) = fields.get("model_path").and_then(Value::as_str) else {
        return Err(place(Control::UpdateFromDisk).missing_field("model_path", fields));
    };
    if let Some(message) = unloadable(app, path) {
        let failure = json!({"success": false, "message": message, "num_paused_requests": 0});
        return Ok(reply::json_of(StatusCode::BAD_REQUEST, &failure));
    }
    let version = fields.get("weight_version").and_then(Value::as_str);
    let flush = flag(fields, "flush_cache", true);
    let abort_first = flag(fields, "abort_all_requests", false);
    app.engine
        .update(abort_first, |weights| {
            weights.set_model_path(path);
            if let Some(version) = version {
                weights.set_version(version);
            }
            if flush && !weights.flush() {
                tracing::warn!("the cache was not flushed: requests are in flight");
            }
        })
        .await;
    let updated = version
        .map(|version| format!(" Weight version updated to {version}."))
        .unwrap_or_default();
    let message = format!("Succeeded to update model weights.{updated}");
    Ok(reply::ok(
        &json!({"success": true, "message": message, "num_paused_requests": 0}),
    ))
}

/// Updates that bring tensors: there are none here, but versions, waiting and flushing are as with real ones.
async fn update_in_place(app: &Arc<App>, fields: &Map<String, Value>) -> Response {
    let version = fields.get("weight_version").and_then(Value::as_str);
    let flush = flag(fields, "flush_cache", true);
    let flushed = app
        .engine
        .update(flag(fields, "abort_all_requests", false), |weights| {
            if let Some(version) = version {
                weights.set_version(version);
            }
            !flush || weights.flush()
        })
        .await;
    if flushed {
        success("Success")
    } else {
        success("Success. The cache was not flushed: requests are in flight.")
    }
}

fn update_version(app: &Arc<App>, fields: &Map<String, Value>) -> Result<Response, ApiError> {
    let Some(version) = fields.get("new_version").and_then(Value::as_str) else {
        return Err(place(Control::UpdateVersion).missing_field("new_version", fields));
    };
    if flag(fields, "abort_all_requests", true) {
        app.engine.abort_all();
    }
    app.engine.set_version(version);
    let message = format!("Weight version updated to {version}");
    Ok(reply::ok(
        &json!({"success": true, "message": message, "new_version": version}),
    ))
}

/// Without the memory saver, or with requests in flight, the real server dies.
fn memory(app: &Arc<App>) -> Result<Response, ApiError> {
    if !app.config.server.memory_saver {
        app.engine
            .die("memory was to be released without --enable-memory-saver");
        return Err(ApiError::Dead);
    }
    if !app.engine.is_idle() {
        app.engine
            .die("memory was to be released while requests were in flight");
        return Err(ApiError::Dead);
    }
    Ok(reply::ok(&Value::Null))
}
