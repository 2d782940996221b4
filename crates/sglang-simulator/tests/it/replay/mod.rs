//! Replays every captured exchange of a real SGLang 0.5.23 against the simulated engine, in order.
//!
//! The clock is paused, so that the twenty seconds of a health check in a pause cost nothing, and times are exact.

mod capture;
mod compare;
mod exceptions;
mod player;
mod scenarios;

use std::path::Path;

use sglang_simulator::{Config, Server, Simulator};

use capture::Capture;
use exceptions::Exceptions;
use player::Player;

/// The first capture after the real server was started anew.
const SECOND_SERVER: u32 = 93;

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures"))
}

/// As the captured server was started. The seed is one whose draws end neither sooner nor later than the captured outputs.
fn engine() -> Simulator {
    let config = Config {
        seed: 4,
        max_running_requests: 16,
        kv_cache_tokens: 8192,
        server: Server {
            model_path: "/models/tiny".into(),
            served_model_name: Some("tiny".into()),
            tokenizer: Some(folder().join("tokenizer")),
            context_length: 2048,
            host: "127.0.0.1".into(),
            port: 32_000,
            ..Server::default()
        },
        ..Config::default()
    };
    Simulator::new(config).expect("a valid configuration")
}

#[tokio::test(start_paused = true)]
async fn every_captured_exchange_is_answered_alike() {
    let captures = Capture::all(folder());
    assert_eq!(captures.len(), 113);
    let mut exceptions = Exceptions::load(&folder().join("exceptions.json"));
    let mut differences = Vec::new();
    let mut player = Player::new(engine());
    for capture in &captures {
        if capture.number == SECOND_SERVER {
            player = Player::new(engine());
        }
        let observed = scenarios::play(&player, capture).await;
        assert_eq!(observed.len(), capture.exchanges.len(), "{}", capture.name);
        for (index, (exchange, observed)) in capture.exchanges.iter().zip(&observed).enumerate() {
            let found = compare::compare(
                capture.number,
                &exchange.response,
                observed,
                &mut exceptions,
            );
            for difference in found {
                differences.push(format!("{}[{index}] {difference}", capture.name));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert_eq!(
        exceptions.unused(),
        Vec::<String>::new(),
        "exceptions that nothing needs"
    );
}
