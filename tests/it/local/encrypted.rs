//! Engines behind https.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sglang_simulator::{Config, Simulator};
use tokio::{io::copy_bidirectional, net::TcpListener, net::TcpStream, task::JoinSet};

use super::run::{self, Run, tempdir};
use crate::authority::{Authority, Server, Valid};

/// A simulated engine behind TLS.
struct Engine {
    url: String,
    _front: Server,
    _serving: JoinSet<()>,
}

impl Engine {
    async fn signed_by(ca: &Authority) -> Self {
        let config = Config {
            time_scale: 1000,
            ..Config::default()
        };
        let routes = Simulator::new(config).unwrap().router();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let acceptor = ca.signs(&["127.0.0.1"], Valid::Now).acceptor();
        let front = Server::of(move |socket| {
            let acceptor = acceptor.clone();
            async move {
                if let Ok(mut stream) = acceptor.accept(socket).await {
                    let mut engine = TcpStream::connect(behind).await.unwrap();
                    let _ = copy_bidirectional(&mut stream, &mut engine).await;
                }
            }
        })
        .await;
        Self {
            url: format!("https://127.0.0.1:{}", front.port),
            _front: front,
            _serving: serving,
        }
    }
}

/// A job with a pool of its own, and a CA in a `ConfigMap`.
fn write_manifests(directory: &Path, external: &Value, ca: &str) {
    let job = json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "RolloutJob", "metadata": {"name": "encrypted"},
        "spec": {
            "pool": {"external": external},
            "dataset": {"inline": [{"prompt": "One?"}, {"prompt": "Two?"}]},
            "rollout": {"batchSize": 2, "samplesPerPrompt": 2},
            "sampling": {"maxNewTokens": 8},
            "generate": {"singleTurn": {}},
            "output": {"persistentVolumeClaim": {"claimName": "samples"}},
        },
    });
    let cas = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cas"},
        "data": {"ca.crt": ca},
    });
    fs::write(directory.join("job.json"), job.to_string()).unwrap();
    fs::write(directory.join("cas.json"), cas.to_string()).unwrap();
}

#[tokio::test]
async fn are_known_by_the_ca_of_the_manifest_or_of_the_command_line() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let engine = Engine::signed_by(&ca).await;
    let home = tempdir();
    let manifests = home.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let tls = json!({"caConfigMapKeyRef": {"name": "cas", "key": "ca.crt"}});
    let external = json!({"urls": [engine.url], "tls": tls});
    let path = manifests.to_str().unwrap();

    write_manifests(&manifests, &external, &ca.pem());
    let output = home.path().join("out");
    let ended = Run::start(path, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    run::verify(&output).await;
    assert_eq!(run::rows(&output).len(), 4);

    write_manifests(&manifests, &external, &other.pem());
    let refused = Run::start(path, &home.path().join("refused")).end().await;
    assert_eq!(refused.code, Some(1), "{}", refused.talk);
    let why = "its certificate is from a CA that is not trusted: name the CA that signed it, with --engine-ca FILE or in spec.external.tls of the pool";
    assert!(
        refused
            .talk
            .contains(&format!("engine {}: {why}", engine.url)),
        "{}",
        refused.talk
    );
    // The command line wins.
    let file = home.path().join("ca.crt");
    fs::write(&file, ca.pem()).unwrap();
    let given = ["--engine-ca", file.to_str().unwrap()];
    let output = home.path().join("given");
    let ended = Run::start_with(path, &output, &given).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    assert_eq!(run::rows(&output).len(), 4);
}
