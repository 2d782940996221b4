//! Which path is which endpoint, and which methods it takes.

use http::Method;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Generate,
    Chat,
    Completions,
    Tokenize,
    Detokenize,
    Models,
    Model,
    ModelInfo,
    ServerInfo,
    Loads,
    Metrics,
    Health,
    Ready,
    Ping,
    Flush,
    Control(Control),
}

/// Calls that change the engine and take a JSON body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Abort,
    Pause,
    Continue,
    UpdateFromDisk,
    UpdateFromDistributed,
    UpdateFromTensor,
    UpdateVersion,
    InitGroup,
    DestroyGroup,
    BeginUpdate,
    EndUpdate,
    GetWeights,
    ReleaseMemory,
    ResumeMemory,
}

/// The simulator's own control paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Panel {
    Faults,
    State,
    Unknown,
}

/// A path of the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    /// As in metrics.
    pub(super) template: &'static str,
    pub(super) endpoint: Endpoint,
    /// As in the `allow` header.
    pub(super) methods: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Match<'a> {
    Found(&'a Route),
    Panel(Panel),
    NotFound,
}

impl Route {
    pub(super) fn allows(&self, method: &Method) -> bool {
        self.methods
            .split(", ")
            .any(|allowed| allowed == method.as_str())
    }
}

impl Match<'_> {
    /// The path as metrics count it.
    pub(super) fn template(&self, path: &str) -> String {
        match self {
            Self::Found(route) => route.template.to_owned(),
            Self::Panel(_) | Self::NotFound => path.to_owned(),
        }
    }
}

const fn route(template: &'static str, endpoint: Endpoint, methods: &'static str) -> Route {
    Route {
        template,
        endpoint,
        methods,
    }
}

const NATIVE: &str = "POST, PUT";
const ANY: &str = "GET, POST";

static ROUTES: &[Route] = &[
    route("/generate", Endpoint::Generate, NATIVE),
    route("/v1/chat/completions", Endpoint::Chat, "POST"),
    route("/v1/completions", Endpoint::Completions, "POST"),
    route("/tokenize", Endpoint::Tokenize, "POST"),
    route("/v1/tokenize", Endpoint::Tokenize, "POST"),
    route("/detokenize", Endpoint::Detokenize, "POST"),
    route("/v1/detokenize", Endpoint::Detokenize, "POST"),
    route("/v1/models", Endpoint::Models, "GET"),
    route("/model_info", Endpoint::ModelInfo, "GET"),
    route("/get_model_info", Endpoint::ModelInfo, "GET"),
    route("/server_info", Endpoint::ServerInfo, "GET"),
    route("/get_server_info", Endpoint::ServerInfo, "GET"),
    route("/v1/loads", Endpoint::Loads, "GET"),
    route("/metrics", Endpoint::Metrics, "GET"),
    route("/health", Endpoint::Health, "GET"),
    route("/health_generate", Endpoint::Health, "GET"),
    route("/ready", Endpoint::Ready, "GET"),
    route("/ping", Endpoint::Ping, "GET"),
    route("/flush_cache", Endpoint::Flush, ANY),
    route("/abort_request", Endpoint::Control(Control::Abort), "POST"),
    route(
        "/pause_generation",
        Endpoint::Control(Control::Pause),
        "POST",
    ),
    route(
        "/continue_generation",
        Endpoint::Control(Control::Continue),
        "POST",
    ),
    route(
        "/update_weights_from_disk",
        Endpoint::Control(Control::UpdateFromDisk),
        "POST",
    ),
    route(
        "/update_weights_from_distributed",
        Endpoint::Control(Control::UpdateFromDistributed),
        "POST",
    ),
    route(
        "/update_weights_from_tensor",
        Endpoint::Control(Control::UpdateFromTensor),
        "POST",
    ),
    route(
        "/update_weight_version",
        Endpoint::Control(Control::UpdateVersion),
        "POST",
    ),
    route(
        "/init_weights_update_group",
        Endpoint::Control(Control::InitGroup),
        "POST",
    ),
    route(
        "/destroy_weights_update_group",
        Endpoint::Control(Control::DestroyGroup),
        "POST",
    ),
    route(
        "/begin_weight_update",
        Endpoint::Control(Control::BeginUpdate),
        "POST",
    ),
    route(
        "/end_weight_update",
        Endpoint::Control(Control::EndUpdate),
        "POST",
    ),
    route(
        "/get_weights_by_name",
        Endpoint::Control(Control::GetWeights),
        ANY,
    ),
    route(
        "/release_memory_occupation",
        Endpoint::Control(Control::ReleaseMemory),
        ANY,
    ),
    route(
        "/resume_memory_occupation",
        Endpoint::Control(Control::ResumeMemory),
        ANY,
    ),
];

static MODEL: Route = route("/v1/models/{model:path}", Endpoint::Model, "GET");

/// Finds the endpoint of a path.
pub(super) fn find(path: &str) -> Match<'static> {
    match path {
        "/simulator/faults" => return Match::Panel(Panel::Faults),
        "/simulator/state" => return Match::Panel(Panel::State),
        _ if path.starts_with("/simulator/") => return Match::Panel(Panel::Unknown),
        _ => {}
    }
    if let Some(route) = ROUTES.iter().find(|route| route.template == path) {
        return Match::Found(route);
    }
    if path
        .strip_prefix("/v1/models/")
        .is_some_and(|model| !model.is_empty())
    {
        return Match::Found(&MODEL);
    }
    Match::NotFound
}
