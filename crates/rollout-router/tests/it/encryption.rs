//! Engines behind https: the wire is the same, and who is not trusted is told apart from who is not there.

use std::time::Duration;

use engine_http::Trust;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::authority::{Authority, Identity, Server, Valid};
use crate::support::{Answer, Bed, Engine, engine_config, user};

/// An engine behind TLS.
struct Encrypted {
    url: String,
    engine: Engine,
    _front: Server,
}

impl Encrypted {
    async fn start(identity: Identity) -> Self {
        let engine = Engine::start(engine_config()).await;
        let (acceptor, behind) = (identity.acceptor(), engine.address());
        let front = Server::of(move |socket| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut stream) = acceptor.accept(socket).await else {
                    return;
                };
                let mut engine = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut engine).await;
            }
        })
        .await;
        Self {
            url: format!("https://127.0.0.1:{}", front.port),
            engine,
            _front: front,
        }
    }

    async fn router(&self, trust: Trust) -> Bed {
        Bed::with(Vec::new(), |config| {
            config.engines = vec![self.url.clone()];
            config.engine_trust = trust;
        })
        .await
    }
}

async fn generate(bed: &Bed) -> Answer {
    let body = json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2}});
    bed.control().post("/generate", body).await
}

#[tokio::test]
async fn sessions_streams_and_aborts_go_through_tls() {
    let ca = Authority::new("ca");
    let encrypted = Encrypted::start(ca.signs(&["127.0.0.1"], Valid::Now)).await;
    let bed = encrypted.router(Trust::only(&ca.pem()).unwrap()).await;
    generate(&bed).await.ok();
    let id = bed.session(json!({})).await;
    let hello = json!({"messages": [user("hi")], "max_tokens": 3, "ignore_eos": true});
    bed.chat(&id, hello.clone()).await.ok();
    let mut streamed = hello;
    streamed["stream"] = json!(true);
    streamed["messages"] = json!([user("hi"), user("there")]);
    let mut pieces = bed.chat_stream(&id, streamed).await;
    let mut text = String::new();
    while let Some(piece) = pieces.next().await {
        text.push_str(&piece);
    }
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(!bed.samples(&id, json!({})).await.samples.is_empty());
    let aborted = bed
        .control()
        .post("/abort_request", json!({"abort_all": true}))
        .await;
    assert_eq!(aborted.ok()["engines"][0]["url"], encrypted.url);
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["engines"][0]["url"], encrypted.url);
    assert_eq!(status["engines"][0]["healthy"], true);
}

#[tokio::test]
async fn an_engine_that_is_not_trusted_gets_nothing_and_the_refusal_says_why() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let trusted = Trust::only(&ca.pem()).unwrap();
    for (identity, why) in [
        (
            other.signs(&["127.0.0.1"], Valid::Now),
            "its certificate is from a CA that is not trusted",
        ),
        (
            ca.signs(&["127.0.0.1"], Valid::Past),
            "its certificate has expired",
        ),
        (
            ca.signs(&["engine.example"], Valid::Now),
            "its certificate is not for 127.0.0.1 but for engine.example",
        ),
    ] {
        let encrypted = Encrypted::start(identity).await;
        let bed = encrypted.router(trusted.clone()).await;
        let answer = generate(&bed).await;
        assert_eq!(answer.status, 503);
        assert!(answer.error().contains(why), "{}", answer.error());
        assert_eq!(encrypted.engine.simulator.state().running, 0);
        let paths = encrypted.engine.simulator.state().paths;
        assert!(paths.is_empty(), "{paths:?}");
    }
}

#[tokio::test]
async fn a_ca_that_is_renewed_is_trusted_from_the_next_connection_on() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let encrypted = Encrypted::start(after.signs(&["127.0.0.1"], Valid::Now)).await;
    let trust = Trust::only(&before.pem()).unwrap();
    let bed = encrypted.router(trust.clone()).await;
    assert_eq!(generate(&bed).await.status, 503);
    trust.renew("no certificate").unwrap_err();
    let answer = generate(&bed).await;
    assert_eq!(answer.status, 503);
    let why = "its certificate is from a CA that is not trusted";
    assert!(answer.error().contains(why), "{}", answer.error());
    trust.renew(&after.pem()).unwrap();
    generate(&bed).await.ok();
}

#[tokio::test]
async fn plain_http_behind_an_https_address_is_told() {
    let engine = Engine::start(engine_config()).await;
    let bed = Bed::with(Vec::new(), |config| {
        config.engines = vec![engine.url.replace("http://", "https://")];
    })
    .await;
    let answer = generate(&bed).await;
    assert_eq!(answer.status, 503);
    let told = answer.error();
    assert!(
        told.contains("does not speak TLS: if it speaks plain HTTP, write http://"),
        "{told}"
    );
    let told = async {
        while !bed
            .control()
            .get("/ready")
            .await
            .text()
            .contains("does not speak TLS")
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), told)
        .await
        .unwrap();
}
