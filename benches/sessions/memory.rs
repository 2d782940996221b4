//! Bytes per idle session, and per stored token.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use rollout_router::{BodyError, Config, Router};
use rollout_session::{FinishReason, Forest, Generation, Shape, TurnContext};
use tower::Service;

const SESSIONS: u32 = 10_000;

pub(crate) fn measure() {
    idle();
    tokens();
}

/// Resident memory in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kibibytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes * 1024.0
}

/// Sessions of a router that nobody has used yet.
fn idle() {
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

/// Turns of ids and log-probabilities, each of which repeats everything before it.
fn tokens() {
    const FORESTS: u32 = 50;
    const TURNS: u32 = 100;
    const ADDED: u32 = 100;
    const OUTPUT: u32 = 100;
    let before = resident();
    let mut forests = Vec::new();
    for _ in 0..FORESTS {
        let mut forest = Forest::of_shape(Shape::Recorded, 0);
        let mut prompt: Vec<u32> = Vec::new();
        for turn in 0..TURNS {
            prompt.extend((0..ADDED).map(|id| id + turn));
            let generation = Generation {
                prompt_ids: prompt.clone(),
                output_ids: (0..OUTPUT).collect(),
                log_probs: vec![-0.5; OUTPUT as usize],
                finish: Some(FinishReason::Stop),
                ..Generation::default()
            };
            prompt.extend(&generation.output_ids);
            let context = TurnContext {
                messages: Some(1 + 2 * turn as usize),
                ..TurnContext::default()
            };
            forest.commit(0, generation, context).unwrap();
        }
        forests.push(forest);
    }
    let stored = f64::from(FORESTS * TURNS * (ADDED + OUTPUT));
    let outputs = f64::from(FORESTS * TURNS * OUTPUT);
    let counted: usize = forests.iter().map(Forest::heap_bytes).sum();
    let bytes = resident() - before;
    println!(
        "stored tokens: {:.1} bytes each, half of them with a log-probability ({:.1} counted), everything of {TURNS} turns included",
        bytes / stored,
        counted as f64 / stored
    );
    println!(
        "an output id with its log-probability: at most {:.1} bytes",
        (bytes - (stored - outputs) * 4.0) / outputs
    );
}
