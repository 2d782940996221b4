//! Where a real engine has its model from: an OCI image, and a hub. A volume is what the jobs use.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use rollout_operator::api::meta;
use serde_json::{Value, json};

use super::engine::{Engine, LIMIT, is_ready, model, of_machine, pool};
use crate::api::objects;
use crate::runtime::jobs::place::Place;
use crate::runtime::pools::{condition, create, pool as pool_of};

/// The engine answers, and its sidecar serves the files that a tokenizer consists of.
async fn serves(place: &Place, pool: &str) {
    is_ready(place, pool).await;
    let engine = Engine::of(place, pool).await;
    assert_eq!(engine.generate("One?", 8).await.len(), 8);
    for name in ["tokenizer.json", "chat_template.jinja"] {
        let expected = std::fs::read_to_string(model().join(name)).unwrap();
        assert_eq!(engine.file(name).await, expected, "{name}");
    }
    assert_eq!(engine.life.1, 0, "the engine's container started again");
}

#[tokio::test]
async fn a_model_in_an_image() {
    let place = Place::without_pool("model-image", &[]).await;
    let image = json!({"reference": "localhost/tiny-model:1", "pullPolicy": "Never"});
    let spec =
        pool(&json!({"path": "models/tiny", "servedName": "tiny", "source": {"image": image}}));
    create(&place.client, &pool_of(&place.namespace, "pool", &spec)).await;
    serves(&place, "pool").await;
    place.end().await;
}

const HUB: &str = include_str!("hub.py");
const MODEL: &str = "tests/tiny";
const REVISION: &str = "v1.0";
const TOKEN: &str = "hf_tests";

/// A hub that has the model, its name, and a Secret with its token.
fn hub(namespace: &str, files: &Path) -> [Value; 4] {
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let mut pod = metadata("hub");
    pod["labels"] = json!({"app": "hub"});
    [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("hub"), "data": {"hub.py": HUB}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("hub"), "stringData": {"token": TOKEN}}),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata("hub"),
            "spec": {"selector": {"app": "hub"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": pod,
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "hub", "image": "localhost/python:1",
                    "command": ["/bin/python3", "/code/hub.py", "/model", MODEL, REVISION, TOKEN],
                    "volumeMounts": [{"name": "code", "mountPath": "/code"}, {"name": "model", "mountPath": "/model", "readOnly": true}],
                }],
                "volumes": [{"name": "code", "configMap": {"name": "hub"}}, of_machine("model", files)],
            },
        }),
    ]
}

/// What a real engine does first: asks the hub, with the hub's own client. Then it answers probes.
const ASKS: &str = r#"
import http.server, json, sys
from huggingface_hub import snapshot_download

flags = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
snapshot_download(flags["model-path"], revision=flags["revision"])

class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        info = json.dumps({"model_path": flags["model-path"], "weight_version": "default"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(info)))
        self.end_headers()
        self.wfile.write(info)

http.server.ThreadingHTTPServer(("", 30000), Engine).serve_forever()
"#;

#[tokio::test]
async fn a_hub_that_refuses_the_token_is_told_and_the_right_one_heals() {
    let place = Place::without_pool("model-token", &[]).await;
    for object in hub(&place.namespace, &model()) {
        create(&place.client, &object).await;
    }
    let secret = |token: &str| {
        let metadata = json!({"name": "mine", "namespace": place.namespace});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": token}})
    };
    create(&place.client, &secret("hf_wrong")).await;
    let hub = json!({"endpoint": "http://hub", "tokenSecretRef": {"name": "mine", "key": "token"}});
    let mut spec = pool(&json!({
        "path": MODEL, "revision": REVISION, "source": {"huggingFace": hub},
    }));
    let engine = &mut spec["engine"]["template"]["spec"]["containers"][0];
    engine["command"] = json!([engine["command"][0], "-c", ASKS]);
    engine["resources"] = json!({"requests": {"cpu": "1m", "memory": "64Mi"}});
    create(&place.client, &pool_of(&place.namespace, "pool", &spec)).await;
    let pools = objects(&place.client, &place.namespace, meta::POOL_KIND);
    place
        .comes_true("the refusal is told", LIMIT, async || {
            condition(&pools, "pool", "Stalled").await == "True/ModelUnavailable"
        })
        .await;
    let status = pools.get("pool").await.unwrap().data["status"].to_string();
    let told = "http://hub does not know the token of the Secret mine, key token (401): put a valid one there";
    assert!(status.contains(told), "{status}");
    // Nobody edits the pool.
    let secrets: Api<Secret> = place.all();
    let patch = Patch::Merge(json!({"stringData": {"token": TOKEN}}));
    secrets
        .patch("mine", &PatchParams::default(), &patch)
        .await
        .unwrap();
    is_ready(&place, "pool").await;
    assert_eq!(
        condition(&pools, "pool", "Stalled").await,
        "False/AsExpected"
    );
    place.end().await;
}

#[tokio::test]
async fn a_model_from_a_hub() {
    let place = Place::without_pool("model-hub", &[]).await;
    for object in hub(&place.namespace, &model()) {
        create(&place.client, &object).await;
    }
    let cache = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "cache", "namespace": place.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create(&place.client, &cache).await;
    let hub = json!({
        "endpoint": "http://hub", "tokenSecretRef": {"name": "hub", "key": "token"}, "cacheClaimName": "cache",
    });
    let spec = pool(&json!({
        "path": MODEL, "revision": REVISION, "servedName": "tiny", "source": {"huggingFace": hub},
    }));
    create(&place.client, &pool_of(&place.namespace, "pool", &spec)).await;
    serves(&place, "pool").await;
    place.end().await;
}
