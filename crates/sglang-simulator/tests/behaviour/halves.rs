//! The two engines that cases run on.

use sglang_simulator::{Config, Server, Simulator};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::engine::{CONTEXT, DEADLINE, Engine, MAX_RUNNING};

/// Names the real engine.
const URL_VARIABLE: &str = "ROLLOUT_SGLANG_URL";

/// There is one real engine, and cases pause and reload it.
static REAL_ENGINE: Mutex<()> = Mutex::const_new(());

/// Runs a case on a simulated engine of its own, over a socket.
pub(crate) async fn on_simulated_engine(case: impl AsyncFn(&Engine)) {
    let config = Config {
        max_running_requests: u32::try_from(MAX_RUNNING).unwrap(),
        kv_cache_tokens: 16_384,
        server: Server {
            model_path: "/models/tiny".into(),
            served_model_name: Some("tiny".into()),
            context_length: u32::try_from(CONTEXT).unwrap(),
            ..Server::default()
        },
        ..Config::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = Engine::new(format!("http://{}", listener.local_addr().unwrap()));
    let cancel = CancellationToken::new();
    let mut server = JoinSet::new();
    let simulator = Simulator::new(config).unwrap();
    server.spawn({
        let cancel = cancel.clone();
        async move { simulator.serve(listener, cancel).await }
    });
    case(&engine).await;
    cancel.cancel();
    timeout(DEADLINE, server.join_next())
        .await
        .expect("the simulated engine does not end")
        .unwrap()
        .unwrap()
        .unwrap();
}

/// Runs a case on the real engine, alone.
pub(crate) async fn on_real_engine(case: impl AsyncFn(&Engine)) {
    let Ok(url) = std::env::var(URL_VARIABLE) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "{URL_VARIABLE} is not set, and under CI the real engine is not optional: run tests/sglang/run.sh"
        );
        eprintln!("not run: {URL_VARIABLE} names no real SGLang");
        return;
    };
    let _alone: MutexGuard<'_, ()> = REAL_ENGINE.lock().await;
    let engine = Engine::new(url.trim_end_matches('/').to_owned());
    engine.reset().await;
    case(&engine).await;
    engine.reset().await;
}
