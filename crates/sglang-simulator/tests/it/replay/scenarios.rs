//! How the captures with several connections were made. All others are sent as they are.

use std::time::Duration;

use serde_json::{Value, json};

use super::capture::Capture;
use super::player::{Observed, Player};

async fn wait(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

fn generate(rid: &str, input_ids: &[u32], max_new_tokens: u32) -> Value {
    json!({"rid": rid, "input_ids": input_ids,
        "sampling_params": {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": true}})
}

/// Plays a capture and answers what came back, in the order of its exchanges.
pub(crate) async fn play(player: &Player, capture: &Capture) -> Vec<Observed> {
    match capture.number {
        37 => duplicate_rid(player).await,
        62..=68 => abort_under_way(player, capture).await,
        71 => abort_queued(player).await,
        72 => client_leaves_and_load(player).await,
        73 => pause(player, "abort", &["/health", "/health_generate"]).await,
        74 => pause(player, "retract", &["/health"]).await,
        75 => pause(player, "in_place", &["/health"]).await,
        83 => flush_while_busy(player, "/flush_cache").await,
        84 => flush_while_busy(player, "/flush_cache?timeout=10").await,
        88 => update_under_way(player).await,
        105 => client_leaves(player, false, &[0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).await,
        106 => client_leaves(player, true, &[0.5, 1.0, 2.0, 3.0, 4.0, 5.0]).await,
        107 => abort_while_paused(player).await,
        108 => resume_a_partial_output(player).await,
        112 => bad_token(player).await,
        _ => {
            let mut observed = Vec::new();
            for exchange in &capture.exchanges {
                observed.push(player.send(&exchange.request).await);
            }
            observed
        }
    }
}

async fn duplicate_rid(player: &Player) -> Vec<Observed> {
    let body = json!({"rid": "dup", "text": "hello", "sampling_params": {"max_new_tokens": 400, "temperature": 0, "ignore_eos": true}});
    let first = player.start("/generate", body.clone()).await;
    let second = player.post("/generate", body).await;
    vec![second, first.answer().await]
}

/// A request, and 0.6 s later the abort that the capture names.
async fn abort_under_way(player: &Player, capture: &Capture) -> Vec<Observed> {
    let path = capture.exchanges[0].request["path"]
        .as_str()
        .expect("a path");
    let request = player.start(path, capture.body()).await;
    wait(0.6).await;
    let abort = player.send(&capture.exchanges[1].request).await;
    vec![request.answer().await, abort]
}

async fn abort_queued(player: &Player) -> Vec<Observed> {
    let mut running = Vec::new();
    for index in 0..16 {
        running.push(
            player
                .start(
                    "/generate",
                    generate(&format!("f{index}"), &[1, 5, 6], 1800),
                )
                .await,
        );
    }
    let queued = player
        .start("/generate", generate("queued", &[1, 5, 6], 8))
        .await;
    wait(0.4).await;
    let load = player.get("/v1/loads").await;
    let abort = player
        .post("/abort_request", json!({"rid": "queued"}))
        .await;
    let queued = queued.answer().await;
    player
        .post("/abort_request", json!({"abort_all": true}))
        .await;
    let first = running.swap_remove(0).answer().await;
    for request in running {
        request.answer().await;
    }
    vec![queued, abort, load, first]
}

async fn client_leaves_and_load(player: &Player) -> Vec<Observed> {
    let request = player
        .start("/generate", generate("left", &[1, 5, 6], 1800))
        .await;
    wait(0.5).await;
    drop(request);
    wait(1.5).await;
    let load = player.get("/v1/loads").await;
    // the real server noticed within 4 s, too
    wait(4.0).await;
    vec![load]
}

async fn pause(player: &Player, mode: &str, probes: &[&str]) -> Vec<Observed> {
    let mut before = player
        .start("/generate", generate(&format!("p-{mode}"), &[1, 5, 6], 300))
        .await;
    wait(0.4).await;
    let mut observed = vec![
        player
            .post("/pause_generation", json!({"mode": mode}))
            .await,
    ];
    wait(0.5).await;
    let body = json!({"input_ids": [1, 5], "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": true}});
    let mut during = player.start("/generate", body).await;
    for probe in probes {
        observed.push(player.get(probe).await);
    }
    observed.push(
        player
            .send(&json!({"method": "POST", "path": "/flush_cache"}))
            .await,
    );
    observed.push(player.get("/model_info").await);
    observed.push(player.get("/v1/loads").await);
    assert_eq!(
        before.is_done(),
        mode == "abort",
        "only mode abort ends what runs"
    );
    assert!(!during.is_done(), "what comes during a pause waits");
    observed.push(player.post("/continue_generation", json!({})).await);
    observed.push(during.answer().await);
    observed.insert(0, before.answer().await);
    observed
}

async fn flush_while_busy(player: &Player, path: &str) -> Vec<Observed> {
    let request = player
        .start("/generate", generate("busy", &[1, 5, 6], 300))
        .await;
    wait(0.3).await;
    let flush = player.send(&json!({"method": "POST", "path": path})).await;
    player.post("/abort_request", json!({"rid": "busy"})).await;
    request.answer().await;
    vec![flush]
}

async fn update_under_way(player: &Player) -> Vec<Observed> {
    let mut body = generate("updated", &[1, 5, 6], 300);
    body.as_object_mut().expect("an object").remove("rid");
    body["return_logprob"] = true.into();
    let request = player.start("/generate", body).await;
    wait(0.45).await;
    let pause = player
        .post("/pause_generation", json!({"mode": "in_place"}))
        .await;
    let update =
        json!({"model_path": "/models/tiny", "weight_version": "v3", "flush_cache": false});
    let update = player.post("/update_weights_from_disk", update).await;
    let resume = player.post("/continue_generation", json!({})).await;
    vec![request.answer().await, pause, update, resume]
}

async fn client_leaves(player: &Player, stream: bool, looks: &[f64]) -> Vec<Observed> {
    let mut body = generate("left", &[1, 5, 6], 1800);
    body["stream"] = stream.into();
    let request = player.start("/generate", body).await;
    wait(0.5).await;
    drop(request);
    let mut observed = Vec::new();
    let mut since = 0.0;
    for look in looks {
        wait(look - since).await;
        since = *look;
        observed.push(player.get("/v1/loads").await);
    }
    observed
}

async fn abort_while_paused(player: &Player) -> Vec<Observed> {
    let mut request = player
        .start("/generate", generate("pp", &[1, 5, 6], 1800))
        .await;
    wait(0.4).await;
    let pause = player
        .post("/pause_generation", json!({"mode": "in_place"}))
        .await;
    let abort = player.post("/abort_request", json!({"rid": "pp"})).await;
    wait(1.0).await;
    assert!(!request.is_done(), "a paused engine ends nothing");
    let resume = player.post("/continue_generation", json!({})).await;
    vec![request.answer().await, pause, abort, resume]
}

async fn resume_a_partial_output(player: &Player) -> Vec<Observed> {
    let mut body = generate("pr", &[1, 5, 6], 1800);
    body["return_logprob"] = true.into();
    let request = player.start("/generate", body.clone()).await;
    wait(0.3).await;
    player.post("/abort_request", json!({"rid": "pr"})).await;
    let first = request.answer().await;
    let Observed::Answer { body: partial, .. } = &first else {
        panic!("{first:?}");
    };
    let partial: Value = serde_json::from_str(partial).expect("JSON");
    let mut ids = vec![json!(1), json!(5), json!(6)];
    ids.extend(
        partial["output_ids"]
            .as_array()
            .expect("ids")
            .iter()
            .cloned(),
    );
    let prompt = ids.len();
    body["input_ids"] = ids.into();
    body.as_object_mut().expect("an object").remove("rid");
    body["sampling_params"]["max_new_tokens"] = 3.into();
    let resumed = player.post("/generate", body).await;
    let Observed::Answer { body: answer, .. } = &resumed else {
        panic!("{resumed:?}");
    };
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    assert_eq!(
        answer["meta_info"]["cached_tokens"],
        prompt - 1,
        "everything that was computed is found again"
    );
    vec![first, resumed]
}

async fn bad_token(player: &Player) -> Vec<Observed> {
    let other = player
        .start("/generate", generate("other", &[1, 5, 6], 300))
        .await;
    wait(0.3).await;
    let bad = player
        .post("/generate", json!({"input_ids": [999_999]}))
        .await;
    assert!(player.simulator.is_dead());
    vec![bad, other.answer().await]
}
