//! Where an engine has its model from is still there when its container starts again. The engine is a stand-in that starts with a model alone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::field::Field;
use super::pools::create;

/// Answers probes, once it has its model; what a hub gives, it gives to the Pod's first engine alone.
const ENGINE: &str = r#"
import http.server, json, os, pathlib, sys

name = next(word.partition("=")[2] for word in sys.argv if word.startswith("--model-path="))
place, first = pathlib.Path(name), not os.path.exists("/dev/shm/again")
if not name.startswith("/"):
    place = pathlib.Path(os.environ["HF_HOME"]) / "hub" / "model"
    if first:
        place.mkdir(parents=True)
        (place / "model").write_text("whole")
if not any((place / file).exists() for file in ("model", "busybox")):
    sys.exit(f"there is no model in {place}")
pathlib.Path("/dev/shm/again").touch()

class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(1)
        info = json.dumps({"model_path": name, "weight_version": "default"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(info)))
        self.end_headers()
        self.wfile.write(info)

http.server.ThreadingHTTPServer(("", 30000), Engine).serve_forever()
"#;

fn spec(model: &Value) -> Value {
    let small = json!({"requests": {"cpu": "1m", "memory": "16Mi"}});
    let command = ["/bin/python3", "-c", ENGINE];
    let engine = json!({"name": "engine", "command": command, "resources": small});
    json!({
        "model": model,
        "engine": {
            "image": "localhost/python:1", "drainTimeoutSeconds": 1,
            "template": {"spec": {"containers": [engine]}},
        },
    })
}

/// The only engine of a pool: its Pod, and how often its container has started again.
async fn engine(field: &Field, pool: &str) -> (Pod, i32) {
    let mut pods = field.engines(pool).await;
    assert_eq!(pods.len(), 1, "{pool}");
    let pod = pods.remove(0);
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let restarts = containers.first().map_or(0, |one| one.restart_count);
    (pod, restarts)
}

#[tokio::test]
async fn a_model_is_still_there_when_its_engine_starts_again() {
    let field = Field::new("sources").await;
    let cache = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "cache", "namespace": field.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create(&field.client, &cache).await;
    // Any image has files.
    let image = json!({"image": {"reference": "localhost/tiny:1", "pullPolicy": "Never"}});
    let claim = json!({"huggingFace": {"cacheClaimName": "cache"}});
    let pools = [
        ("image", json!({"path": "bin", "source": image})),
        ("claim", json!({"path": "tests/tiny", "source": claim})),
        ("plain", json!({"path": "tests/tiny"})),
    ];
    for (pool, model) in &pools {
        field.pool(pool, &spec(model)).await;
    }
    for (pool, _) in &pools {
        field.pool_becomes(pool, "Ready", "True/AsExpected").await;
    }
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (pool, _) in &pools {
        let (pod, restarts) = engine(&field, pool).await;
        assert_eq!(restarts, 0, "{pool}");
        let address = pod.status.unwrap().pod_ip.unwrap();
        let deadly = client.get(format!("http://{address}:30000/die"));
        let answer = deadly.timeout(Duration::from_secs(10)).send().await;
        assert!(answer.is_err(), "{pool}: it lives");
    }
    for (pool, _) in &pools {
        field
            .until(&format!("{pool} starts again"), async || {
                engine(&field, pool).await.1 == 1
            })
            .await;
        field.pool_becomes(pool, "Ready", "True/AsExpected").await;
        assert_eq!(engine(&field, pool).await.1, 1, "{pool}");
    }
    field.end().await;
}
