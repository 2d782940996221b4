//! What a session costs that is there and does nothing: 10,000 of them in a router, in one process without a socket.
//!
//! `benches/run sessions` runs it. Memory is the process's resident memory before and after.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on stops"
)]

#[path = "../support/resident.rs"]
mod resident;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use rollout_router::{BodyError, Config, Router};
use tower::Service;

use resident::resident;

const SESSIONS: u32 = 10_000;

/// Sessions of a router that nobody has used yet.
fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        // Nobody listens there, and nobody has to.
        let router = Router::new(Config::new(["http://127.0.0.1:9"])).unwrap();
        let mut service = router.control_service();
        create(&mut service).await;
        let before = resident();
        for _ in 0..SESSIONS {
            create(&mut service).await;
        }
        let each = (resident() - before) / f64::from(SESSIONS);
        println!("idle sessions: {each:.0} bytes each ({SESSIONS} live in a router)");
        router.stop().await;
    });
}

async fn create(service: &mut rollout_router::Service) {
    let body =
        Full::new(Bytes::from_static(b"{}")).map_err(|never| -> BodyError { match never {} });
    let request = Request::builder()
        .method(Method::POST)
        .uri("/sessions")
        .body(body)
        .unwrap();
    let answer = service.call(request).await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
}
