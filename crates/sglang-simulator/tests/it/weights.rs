//! Weight updates that bring no files, and memory.

use std::time::Duration;

use serde_json::json;
use sglang_simulator::{Config, Server};

use crate::support::{attempt, get, post, simulator};

#[tokio::test(start_paused = true)]
async fn an_update_over_a_group_changes_the_version() {
    let engine = simulator(Config::default());
    let group = json!({"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g"});
    assert_eq!(
        post(&engine, "/init_weights_update_group", group)
            .await
            .json()["success"],
        true
    );
    let update = json!({"names": ["w"], "dtypes": ["float32"], "shapes": [[1]], "group_name": "g", "weight_version": "5"});
    assert_eq!(
        post(&engine, "/update_weights_from_distributed", update)
            .await
            .json()["success"],
        true
    );
    assert_eq!(
        get(&engine, "/model_info").await.json()["weight_version"],
        "5"
    );
    assert_eq!(
        post(
            &engine,
            "/destroy_weights_update_group",
            json!({"group_name": "g"})
        )
        .await
        .json()["success"],
        true
    );
}

#[tokio::test(start_paused = true)]
async fn by_default_a_new_version_aborts_what_runs() {
    let engine = simulator(Config::default());
    let body = json!({"input_ids": [1, 5], "sampling_params": {"max_new_tokens": 1000, "ignore_eos": true}});
    let (reply, ()) = tokio::join!(post(&engine, "/generate", body), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        post(
            &engine,
            "/update_weight_version",
            json!({"new_version": "v2"}),
        )
        .await;
    });
    assert_eq!(reply.json()["meta_info"]["finish_reason"]["type"], "abort");
}

#[tokio::test(start_paused = true)]
async fn memory_is_released_only_with_the_saver_and_only_when_idle() {
    let saver = || Config {
        server: Server {
            memory_saver: true,
            ..Server::default()
        },
        ..Config::default()
    };
    let engine = simulator(saver());
    for path in ["/release_memory_occupation", "/resume_memory_occupation"] {
        let reply = post(&engine, path, json!({"tags": ["kv_cache"]})).await;
        assert_eq!((reply.status, reply.text.as_str()), (200, "null"));
    }
    let body = json!({"input_ids": [1, 5], "sampling_params": {"max_new_tokens": 1000, "ignore_eos": true}});
    let (reply, ()) = tokio::join!(attempt(&engine, "/generate", body), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            attempt(&engine, "/release_memory_occupation", json!({}))
                .await
                .is_none()
        );
    });
    assert!(reply.is_none() && engine.is_dead());
}
