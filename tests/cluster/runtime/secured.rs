//! External engines behind https, and some that ask for a key. They run in the test's own process, on the node's address.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use sglang_simulator::{Config, Simulator};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::field::Field;
use super::pools::create;
use crate::authority::{Authority, Server, Valid};

async fn node_address(field: &Field) -> String {
    let nodes: Api<Node> = Api::all(field.client.clone());
    let node = nodes.list(&ListParams::default()).await.unwrap();
    let addresses = node.items[0].status.clone().unwrap().addresses.unwrap();
    let internal = addresses
        .into_iter()
        .find(|address| address.type_ == "InternalIP");
    internal.unwrap().address
}

/// A simulated engine of this process; with a key it answers nobody without that.
struct Engine {
    port: u16,
    _serving: JoinSet<()>,
}

impl Engine {
    async fn start(key: Option<&'static str>) -> Self {
        let config = Config {
            time_scale: 4,
            ..Config::default()
        };
        let gate = middleware::from_fn(move |request: Request, next: Next| async move {
            let given = request.headers().get("authorization");
            let expected = key.map(|key| format!("Bearer {key}"));
            match expected {
                Some(expected) if given.is_none_or(|given| given != expected.as_str()) => {
                    StatusCode::UNAUTHORIZED.into_response()
                }
                _ => next.run(request).await,
            }
        });
        let routes = Simulator::new(config).unwrap().router().layer(gate);
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            port,
            _serving: serving,
        }
    }
}

fn cas(namespace: &str, good: &str, other: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cas", "namespace": namespace},
        "data": {"good.crt": good, "other.crt": other, "none.crt": "MIIB"},
    })
}

#[tokio::test]
async fn engines_behind_https_are_known_by_the_ca_that_the_pool_names() {
    let field = Field::new("https").await;
    let address = node_address(&field).await;
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let engine = Engine::start(None).await;
    let acceptor = ca.signs(&[&address], Valid::Now).acceptor();
    let behind = engine.port;
    let front = Server::at("0.0.0.0:0", move |socket| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(socket).await else {
                return;
            };
            let mut engine = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut engine).await;
        }
    })
    .await;
    let url = format!("https://{address}:{}", front.port);
    let with = |key: &str| {
        json!({"external": {
            "urls": [url],
            "tls": {"caConfigMapKeyRef": {"name": "cas", "key": key}},
        }})
    };
    field.pool("outer", &with("other.crt")).await;
    field
        .pool_becomes("outer", "Stalled", "True/ReferenceNotFound")
        .await;
    let said = field.said("outer", "Stalled").await;
    assert!(
        said.starts_with("spec.external.tls.caConfigMapKeyRef: there is no ConfigMap"),
        "{said}"
    );
    // It heals by itself as far as that goes: nobody edits the pool.
    create(
        &field.client,
        &cas(&field.namespace, &ca.pem(), &other.pem()),
    )
    .await;
    field
        .pool_becomes("outer", "Stalled", "True/EngineUnsuitable")
        .await;
    assert_eq!(
        field.said("outer", "Stalled").await,
        format!(
            "{url}: its certificate is from a CA that is not trusted: name the CA that signed it"
        )
    );
    field
        .edit("outer", &json!({"spec": with("none.crt")}))
        .await;
    field
        .pool_becomes("outer", "Stalled", "True/InvalidSpec")
        .await;
    let said = field.said("outer", "Stalled").await;
    assert!(
        said.contains("is no CA: there is no certificate in it"),
        "{said}"
    );

    field
        .edit("outer", &json!({"spec": with("good.crt")}))
        .await;
    field
        .pool_becomes("outer", "Ready", "True/AsExpected")
        .await;
    let status = field.pool_status("outer").await;
    assert_eq!(status["engines"][0]["url"], url, "{status}");
    assert_eq!(status["engines"][0]["version"], "0.5.23", "{status}");
    field.job("job", "outer", &json!({})).await;
    field
        .job_becomes("job", "Complete", "True/TargetReached")
        .await;
    assert_eq!(field.job_status("job").await["output"]["samples"], 4);
    let settled: Api<ConfigMap> = field.all();
    assert!(settled.get_opt("cas").await.unwrap().is_some());
    field.end().await;
}

/// The kubelet brings another Secret to a Pod within two minutes; a new Pod has it at once.
async fn ask_anew(field: &Field) {
    let pods = field.all::<Pod>();
    let asking = ListParams::default().labels("rollout-operator.dev/component=survey");
    for pod in pods.list(&asking).await.unwrap() {
        let name = pod.metadata.name.unwrap();
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&name, &now).await.unwrap();
    }
}

fn key(namespace: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "k", "namespace": namespace},
        "stringData": {"key": key},
    })
}

#[tokio::test]
async fn engines_with_a_key_are_tested_with_it_and_a_wrong_one_is_told() {
    let field = Field::new("keyed").await;
    let address = node_address(&field).await;
    let engine = Engine::start(Some("right")).await;
    let url = format!("http://{address}:{}", engine.port);
    let spec = json!({"external": {
        "urls": [url],
        "apiKeySecretRef": {"name": "k", "key": "key"},
    }});
    field.pool("outer", &spec).await;
    field
        .pool_becomes("outer", "Stalled", "True/ReferenceNotFound")
        .await;
    assert_eq!(
        field.said("outer", "Stalled").await,
        "the engines' key cannot be read: the Secret k, key key: entity not found"
    );
    create(&field.client, &key(&field.namespace, "wrong")).await;
    ask_anew(&field).await;
    field
        .pool_becomes("outer", "Stalled", "True/EngineUnsuitable")
        .await;
    let said = field.said("outer", "Stalled").await;
    assert!(
        said.contains("refuses the key of spec.external.apiKeySecretRef"),
        "{said}"
    );
    let secrets: Api<Secret> = field.all();
    secrets.delete("k", &DeleteParams::default()).await.unwrap();
    create(&field.client, &key(&field.namespace, "right")).await;
    ask_anew(&field).await;
    field
        .pool_becomes("outer", "Ready", "True/AsExpected")
        .await;
    let status = field.pool_status("outer").await;
    assert_eq!(status["engines"][0]["version"], "0.5.23", "{status}");
    assert_eq!(status["display"]["weights"], "default", "{status}");
    field.job("job", "outer", &json!({})).await;
    field
        .job_becomes("job", "Complete", "True/TargetReached")
        .await;
    // Without a key nobody needs such a Pod.
    field
        .edit(
            "outer",
            &json!({"spec": {"external": {"apiKeySecretRef": null}}}),
        )
        .await;
    field
        .pool_becomes("outer", "Stalled", "True/EngineUnsuitable")
        .await;
    let said = field.said("outer", "Stalled").await;
    assert!(said.contains("asks for a key"), "{said}");
    let asking = ListParams::default().labels("rollout-operator.dev/component=survey");
    field
        .until("the Pod with the key is gone", async || {
            field
                .all::<Pod>()
                .list(&asking)
                .await
                .unwrap()
                .items
                .is_empty()
        })
        .await;
    field.end().await;
}
