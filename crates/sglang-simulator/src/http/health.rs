//! Probes.
//!
//! `/health` sends a hidden request and looks once per second whether the engine said anything: never faster than a second, 503
//! after twenty, which a paused engine always reaches. A failed one makes `/ping` fail too, until a later one succeeds.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;

use super::App;
use super::reply::bare;

const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS: u32 = 20;

/// `/health` and `/health_generate`.
pub(super) async fn health(app: Arc<App>) -> Response {
    if app.engine.is_draining() {
        return bare(StatusCode::SERVICE_UNAVAILABLE);
    }
    for _ in 0..LOOKS {
        app.engine.clock.sleep(LOOK_EVERY).await;
        if app.engine.is_answering() {
            app.engine.set_unhealthy(false);
            return bare(StatusCode::OK);
        }
    }
    app.engine.set_unhealthy(true);
    bare(StatusCode::SERVICE_UNAVAILABLE)
}

/// Up, not draining, not paused.
pub(super) fn ready(app: &App) -> Response {
    answer(ping_ok(app) && !app.engine.is_paused())
}

/// Up and not draining.
pub(super) fn ping(app: &App) -> Response {
    answer(ping_ok(app))
}

fn ping_ok(app: &App) -> bool {
    !app.engine.is_draining() && !app.engine.is_unhealthy()
}

fn answer(well: bool) -> Response {
    bare(if well {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    })
}
