//! Listening, and settings that cannot work.

use rollout_router::{Config, Listeners, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{Bed, Served, engine_config};

fn refusal(urls: &[&str]) -> String {
    Router::new(Config::new(urls.iter().copied()))
        .unwrap_err()
        .to_string()
}

#[tokio::test]
async fn engine_urls_that_cannot_work_are_refused_with_what_to_do() {
    assert!(refusal(&["ftp://engine:30000"]).contains("does not start with http:// or https://"));
    assert!(refusal(&["engine:30000"]).contains("does not start with http://"));
    assert!(refusal(&["http://engine:30000/v1"]).contains("has a path"));
    assert!(refusal(&["http://u@engine"]).contains("user name"));
    assert!(refusal(&["http://a:1", "http://a:1/"]).contains("given twice"));
    assert!(refusal(&["::"]).contains("is not a URL") || refusal(&["::"]).contains("http://"));
    assert_eq!(refusal(&[]), "no engine URL was given");
}

#[tokio::test]
async fn an_open_control_port_is_refused() {
    let bed = Bed::start().await;
    let listeners = Listeners {
        agents: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        control: TcpListener::bind("0.0.0.0:0").await.unwrap(),
    };
    let error = bed
        .router
        .serve(listeners, CancellationToken::new())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("not a loopback address"),
        "{error}"
    );
}

#[tokio::test]
async fn sessions_are_advertised_at_the_agents_address() {
    let bed = Bed::with(vec![engine_config()], |config| config.advertise_url = None).await;
    let served = Served::start(&bed.router).await;
    let url = loop {
        let created = bed.control().post("/sessions", json!({})).await.ok();
        let url = created["base_url"].as_str().unwrap().to_owned();
        if !url.starts_with("http://127.0.0.1/") {
            break url;
        }
        tokio::task::yield_now().await;
    };
    assert!(
        url.starts_with(&format!("http://{}/sessions/", served.agents)),
        "{url}"
    );
    served.cancel.cancel();
    served.ended.await.unwrap();
}

#[tokio::test]
async fn a_stopped_router_takes_no_work() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    bed.router.stop().await;
    assert_eq!(bed.chat(&id, json!({"messages": []})).await.status, 410);
    assert_eq!(bed.control().post("/sessions", json!({})).await.status, 410);
    let ready = bed.control().get("/ready").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("stopping"));
}
