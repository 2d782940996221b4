//! Which route a path is. Pure, and exact: a path that is not spelled as documented is no route.

use http::Method;

use crate::error::ApiError;
use crate::id::HexId;

/// The listener that a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Agents and launchers.
    Agents,
    /// Driver, controller, people.
    Control,
}

/// A route with what its path carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    Ready,
    Metrics,
    Status,
    CreateSession,
    GetSession(HexId),
    DeleteSession(HexId),
    Samples(HexId),
    SessionOutcome(HexId),
    SessionChat(HexId),
    SessionGenerate(HexId),
    /// An engine route that changes nothing.
    SessionRaw(HexId, &'static str),
    /// Passed to an engine as it is.
    Forward(Forward),
    AbortRequest,
    Fence,
    Unfence,
    AgentAbort,
    PodEnded,
    Outcomes,
    Demand,
    Workers,
    WorkerUrls,
    AcceptWorker,
    AddWorker,
    RemoveWorker,
    GetWorker(String),
    DeleteWorker(String),
    /// A control call for every engine.
    EveryEngine(&'static str),
    Claim,
    Heartbeat(HexId),
    Events(HexId),
    Result(HexId),
}

/// Work without a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forward {
    Generate,
    Chat,
    Completions,
    Models,
}

impl Forward {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Generate => "/generate",
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Models => "/v1/models",
        }
    }
}

/// Engine routes that a session may use although nothing is recorded: they generate nothing and change nothing.
const RAW: [(&str, &str); 5] = [
    ("v1/models", "/v1/models"),
    ("v1/tokenize", "/v1/tokenize"),
    ("tokenize", "/tokenize"),
    ("v1/detokenize", "/v1/detokenize"),
    ("detokenize", "/detokenize"),
];

/// Control calls of an engine that go to all of them, and whether GET does it too.
const EVERY_ENGINE: [(&str, bool); 13] = [
    ("/pause_generation", false),
    ("/continue_generation", false),
    ("/flush_cache", true),
    ("/update_weights_from_disk", false),
    ("/update_weights_from_distributed", false),
    ("/update_weights_from_tensor", false),
    ("/update_weight_version", false),
    ("/init_weights_update_group", false),
    ("/destroy_weights_update_group", false),
    ("/begin_weight_update", false),
    ("/end_weight_update", false),
    ("/release_memory_occupation", true),
    ("/resume_memory_occupation", true),
];

impl Route {
    /// The route of a request.
    ///
    /// # Errors
    /// No such route, another method, or a route that this listener does not have.
    pub(crate) fn of(listener: Listener, method: &Method, path: &str) -> Result<Self, ApiError> {
        if let Some(rest) = path.strip_prefix("/sessions/") {
            let (id, rest) = rest.split_once('/').unwrap_or((rest, ""));
            return session_route(listener, method, path, id, rest);
        }
        if let Some(rest) = path.strip_prefix("/agent/sessions/") {
            return launcher_route(method, path, rest);
        }
        let route = match (method.as_str(), path) {
            ("GET" | "HEAD", "/health") => Self::Health,
            ("POST", "/agent/claim") => Self::Claim,
            _ => return Self::of_control(listener, method, path),
        };
        Ok(route)
    }

    fn of_control(listener: Listener, method: &Method, path: &str) -> Result<Self, ApiError> {
        let allowed: &[(&str, Self)] = match path {
            "/health" => &[("GET", Self::Health)],
            "/agent/claim" => &[("POST", Self::Claim)],
            "/ready" => &[("GET", Self::Ready)],
            "/metrics" => &[("GET", Self::Metrics)],
            "/status" => &[("GET", Self::Status)],
            "/sessions" => &[("POST", Self::CreateSession)],
            "/generate" => &[("POST", Self::Forward(Forward::Generate))],
            "/v1/chat/completions" => &[("POST", Self::Forward(Forward::Chat))],
            "/v1/completions" => &[("POST", Self::Forward(Forward::Completions))],
            "/v1/models" => &[("GET", Self::Forward(Forward::Models))],
            "/abort_request" => &[("POST", Self::AbortRequest)],
            "/fence" => &[("POST", Self::Fence), ("DELETE", Self::Unfence)],
            "/agent-abort" => &[("POST", Self::AgentAbort)],
            "/pod-ended" => &[("POST", Self::PodEnded)],
            "/outcomes" => &[("GET", Self::Outcomes)],
            "/demand" => &[("GET", Self::Demand)],
            "/workers" => &[("GET", Self::Workers), ("POST", Self::AcceptWorker)],
            "/list_workers" => &[("GET", Self::WorkerUrls)],
            "/add_worker" => &[("POST", Self::AddWorker)],
            "/remove_worker" => &[("POST", Self::RemoveWorker)],
            _ => return Self::of_engines(listener, method, path),
        };
        if listener == Listener::Agents && !matches!(path, "/health" | "/agent/claim") {
            return Err(not_for_agents(path));
        }
        allowed
            .iter()
            .find(|(name, _)| *name == method.as_str())
            .map(|(_, route)| route.clone())
            .ok_or(ApiError::MethodNotAllowed)
    }
}

impl Route {
    /// One worker, or a call for every engine.
    fn of_engines(listener: Listener, method: &Method, path: &str) -> Result<Self, ApiError> {
        let worker = path
            .strip_prefix("/workers/")
            .filter(|name| !name.is_empty());
        let call = EVERY_ENGINE.iter().find(|(name, _)| *name == path);
        if worker.is_none() && call.is_none() {
            return Err(no_route(path));
        }
        if listener == Listener::Agents {
            return Err(not_for_agents(path));
        }
        match (worker, call, method.as_str()) {
            (Some(name), _, "GET") => Ok(Self::GetWorker(name.to_owned())),
            (Some(name), _, "DELETE") => Ok(Self::DeleteWorker(name.to_owned())),
            (None, Some((path, _)), "POST") | (None, Some((path, true)), "GET") => {
                Ok(Self::EveryEngine(path))
            }
            _ => Err(ApiError::MethodNotAllowed),
        }
    }
}

fn session_route(
    listener: Listener,
    method: &Method,
    path: &str,
    id: &str,
    rest: &str,
) -> Result<Route, ApiError> {
    if rest.split('/').any(|part| part == "sessions") {
        return Err(ApiError::NotFound(format!(
            "the path {path} contains /sessions/<id> twice: base_url already ends in it, do not append it again"
        )));
    }
    let id = HexId::parse(id).ok_or_else(|| ApiError::SessionNotFound(id.to_owned()))?;
    let wanted = match rest {
        "v1/chat/completions" => ("POST", Route::SessionChat(id)),
        "generate" => ("POST", Route::SessionGenerate(id)),
        "" | "samples" | "outcome" if listener == Listener::Agents => {
            return Err(not_for_agents(path));
        }
        "" => match method.as_str() {
            "GET" => ("GET", Route::GetSession(id)),
            _ => ("DELETE", Route::DeleteSession(id)),
        },
        "samples" => ("POST", Route::Samples(id)),
        "outcome" => ("POST", Route::SessionOutcome(id)),
        _ => return raw_route(method, path, id, rest),
    };
    if method.as_str() == wanted.0 {
        Ok(wanted.1)
    } else {
        Err(ApiError::MethodNotAllowed)
    }
}

fn raw_route(method: &Method, path: &str, id: HexId, rest: &str) -> Result<Route, ApiError> {
    if let Some((_, upstream)) = RAW.iter().find(|(name, _)| *name == rest) {
        let wanted = if *upstream == "/v1/models" {
            Method::GET
        } else {
            Method::POST
        };
        if *method != wanted {
            return Err(ApiError::MethodNotAllowed);
        }
        return Ok(Route::SessionRaw(id, upstream));
    }
    Err(ApiError::Forbidden(format!(
        "{path}: a session reaches v1/chat/completions, generate, v1/models, tokenize and detokenize, nothing else of the engine"
    )))
}

fn launcher_route(method: &Method, path: &str, rest: &str) -> Result<Route, ApiError> {
    let (id, action) = rest.split_once('/').unwrap_or((rest, ""));
    let id = HexId::parse(id).ok_or_else(|| ApiError::SessionNotFound(id.to_owned()))?;
    let (wanted, route) = match action {
        "heartbeat" => (Method::POST, Route::Heartbeat(id)),
        "events" => (Method::GET, Route::Events(id)),
        "result" => (Method::POST, Route::Result(id)),
        _ => return Err(no_route(path)),
    };
    if *method == wanted {
        Ok(route)
    } else {
        Err(ApiError::MethodNotAllowed)
    }
}

fn no_route(path: &str) -> ApiError {
    ApiError::NotFound(format!("no such route: {path}"))
}

fn not_for_agents(path: &str) -> ApiError {
    ApiError::Forbidden(format!("{path} is not served on the agents' port"))
}
