//! The simulator's own control paths: faults and state.

use axum::extract::Request;
use axum::response::Response;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::reply;
use super::routes::Panel;
use super::{App, body};
use crate::engine::report::StateReport;
use crate::faults::Fault;

#[derive(Deserialize)]
#[serde(untagged)]
enum FaultsBody {
    Many(Vec<Fault>),
    One(Fault),
}

pub(super) async fn handle(app: &App, panel: Panel, request: Request) -> Response {
    match (panel, request.method()) {
        (Panel::State, &Method::GET) => reply::ok(&app.state()),
        (Panel::State, _) => reply::method_not_allowed("GET"),
        (Panel::Faults, &Method::GET) => reply::ok(&app.faults.lock().report()),
        (Panel::Faults, &Method::POST) => add_faults(app, request).await,
        (Panel::Faults, &Method::DELETE) => {
            app.faults.lock().clear();
            reply::ok(&json!([]))
        }
        (Panel::Faults, _) => reply::method_not_allowed("GET, POST, DELETE"),
        (Panel::Unknown, _) => reply::not_found(),
    }
}

async fn add_faults(app: &App, request: Request) -> Response {
    let refuse = |message: String| {
        reply::json_of(
            StatusCode::BAD_REQUEST,
            &json!({"error": {"message": message}}),
        )
    };
    let bytes = match body::read(request).await {
        Ok(bytes) => bytes,
        Err(error) => return error.into_response(),
    };
    // a single fault is tried alone for the sake of its error text
    let faults = match serde_json::from_slice(&bytes) {
        Ok(FaultsBody::Many(faults)) => faults,
        Ok(FaultsBody::One(fault)) => vec![fault],
        Err(error) => {
            let clearer = serde_json::from_slice::<Fault>(&bytes)
                .err()
                .map(|error| error.to_string());
            return refuse(clearer.unwrap_or_else(|| error.to_string()));
        }
    };
    if let Some(problem) = faults.iter().find_map(|fault| fault.validate().err()) {
        return refuse(problem);
    }
    let mut set = app.faults.lock();
    for fault in faults {
        set.add(fault);
    }
    reply::ok(&set.report())
}

impl App {
    /// The state for reports.
    pub(crate) fn state(&self) -> StateReport {
        StateReport {
            unknown: self.model.unknown_requests(),
            faults: self.faults.lock().report(),
            paths: self.activity.by_path(),
            ..self.engine.report()
        }
    }
}
