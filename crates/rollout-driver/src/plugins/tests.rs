//! The client against a host whose every answer, silence and death the test decides.

use super::*;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

const LIMIT: Duration = Duration::from_secs(20);

struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("plugins.sock")
    }

    fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(self.socket());
        UnixListener::bind(self.socket()).expect("a socket")
    }
}

/// A connection as the host sees it.
struct Peer {
    stream: BufReader<UnixStream>,
}

impl Peer {
    async fn accept(listener: &UnixListener) -> Self {
        Self {
            stream: BufReader::new(listener.accept().await.expect("a connection").0),
        }
    }

    /// The next request; `None` when the client closed the connection.
    async fn request(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.expect("a line");
        (!line.is_empty()).then(|| serde_json::from_str(&line).expect("JSON"))
    }

    async fn pong(&mut self) {
        let ping = self.request().await.expect("a ping");
        assert_eq!(ping["call"], "ping");
        self.answer(&ping, json!("pong")).await;
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        let line = format!("{}\n", json!({"id": request["id"], "result": result}));
        self.stream
            .write_all(line.as_bytes())
            .await
            .expect("written");
    }
}

fn load() -> PluginCall<'static> {
    PluginCall::Load {
        path: "rewards.score",
    }
}

#[tokio::test]
async fn a_call_is_one_line_with_the_samples() {
    let home = Home::new();
    let listener = home.listen();
    let client = PluginClient::new(home.socket(), 4);
    let samples = [Sample {
        index: Some(3),
        response: "a\nb".into(),
        ..Sample::default()
    }];
    let args = json!({"weight": 2});
    let call = PluginCall::Reward {
        path: "rewards.score",
        args: &args,
        samples: &samples,
        batch: true,
    };
    let host = async {
        let mut peer = Peer::accept(&listener).await;
        let request = peer.request().await.expect("a request");
        peer.answer(&request, json!([0.5])).await;
        request
    };
    let (result, request) = tokio::join!(client.call(call, LIMIT), host);
    assert_eq!(result.expect("a result"), json!([0.5]));
    assert_eq!(request["call"], "reward");
    assert_eq!(request["path"], "rewards.score");
    assert_eq!(request["batch"], true);
    assert_eq!(request["args"], args);
    assert_eq!(request["samples"][0]["index"], 3);
    assert_eq!(request["samples"][0]["response"], "a\nb");
}

#[tokio::test]
async fn calls_share_connections_and_are_bounded() {
    let home = Home::new();
    let listener = home.listen();
    let client = PluginClient::new(home.socket(), 2);
    let host = async {
        let mut connections = 0;
        let mut peers = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    connections += 1;
                    let mut peer = Peer { stream: BufReader::new(accepted.expect("a connection").0) };
                    peers.spawn(async move {
                        let mut calls = 0;
                        while let Some(request) = peer.request().await {
                            peer.answer(&request, request["id"].clone()).await;
                            calls += 1;
                        }
                        calls
                    });
                }
                Some(calls) = peers.join_next() => {
                    let mut all: u32 = calls.expect("a peer");
                    while let Some(calls) = peers.join_next().await {
                        all += calls.expect("a peer");
                    }
                    return (connections, all);
                }
            }
        }
    };
    let calls = async {
        let results =
            futures_util::future::join_all((0..50).map(|_| client.call(load(), LIMIT))).await;
        let mut ids: Vec<_> = results
            .into_iter()
            .map(|id| id.expect("a result").as_u64())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=50).map(Some).collect::<Vec<_>>());
        client.idle.lock().clear();
    };
    let ((connections, calls), ()) = tokio::join!(host, calls);
    assert_eq!(calls, 50);
    assert!(connections <= 2, "{connections} connections");
}

#[tokio::test]
async fn a_host_that_starts_late_is_waited_for() {
    let home = Home::new();
    let client = PluginClient::new(home.socket(), 1);
    let mut call = Box::pin(client.call(load(), LIMIT));
    assert!(futures_util::poll!(&mut call).is_pending());
    let listener = home.listen();
    let host = async {
        let mut peer = Peer::accept(&listener).await;
        let request = peer.request().await.expect("a request");
        peer.answer(&request, json!("up")).await;
    };
    let (result, ()) = tokio::join!(call, host);
    assert_eq!(result.expect("a result"), json!("up"));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_never_starts_is_named() {
    let home = Home::new();
    let error = PluginClient::new(home.socket(), 1)
        .call(load(), Duration::from_secs(3))
        .await
        .expect_err("nobody");
    assert_eq!(error.label(), "unreachable");
    let text = error
        .to_string()
        .replace(&home.directory.path().display().to_string(), "DIR");
    assert_eq!(
        text,
        "rewards.score: cannot reach the plug-in host at DIR/plugins.sock within 3 s"
    );
}

#[tokio::test]
async fn a_late_answer_is_an_error_and_cancels_the_call() {
    let home = Home::new();
    let listener = home.listen();
    let client = PluginClient::new(home.socket(), 1);
    let host = async {
        let mut peer = Peer::accept(&listener).await;
        peer.request().await.expect("a request");
        peer.request().await
    };
    let (result, after) = tokio::join!(client.call(load(), Duration::from_millis(50)), host);
    let error = result.expect_err("late");
    assert_eq!(
        error.to_string(),
        "rewards.score: no answer from the plug-in host within 0.05 s"
    );
    assert!(after.is_none(), "the connection of the call is closed");
}

#[tokio::test]
async fn a_call_during_which_the_host_ends_is_repeated_once() {
    let home = Home::new();
    let listener = home.listen();
    let client = PluginClient::new(home.socket(), 1);
    let host = async {
        Peer::accept(&listener)
            .await
            .request()
            .await
            .expect("a request");
        // The host that is ending accepts a last connection, and says nothing.
        drop(Peer::accept(&listener).await);
        let mut peer = Peer::accept(&listener).await;
        peer.pong().await;
        let request = peer.request().await.expect("the same request");
        peer.answer(&request, json!(1)).await;
    };
    let (result, ()) = tokio::join!(client.call(load(), LIMIT), host);
    assert_eq!(result.expect("a result"), json!(1));

    let host = async {
        for sends in 0..3 {
            let mut peer = Peer::accept(&listener).await;
            if sends > 0 {
                peer.pong().await;
            }
            peer.request().await.expect("a request");
        }
    };
    client.idle.lock().clear();
    let error = tokio::select! {
        result = client.call(load(), LIMIT) => result.expect_err("lost"),
        () = host => panic!("sent more than twice"),
    };
    assert_eq!(
        error.to_string(),
        "rewards.score: the plug-in host ended during the call, 2 times"
    );
}

#[tokio::test]
async fn a_restart_between_calls_is_not_seen() {
    let home = Home::new();
    let client = PluginClient::new(home.socket(), 1);
    for round in 0..3 {
        let listener = home.listen();
        let host = async {
            let mut peer = Peer::accept(&listener).await;
            let request = peer.request().await.expect("a request");
            peer.answer(&request, json!(round)).await;
        };
        let (result, ()) = tokio::join!(client.call(load(), LIMIT), host);
        assert_eq!(result.expect("a result"), json!(round));
    }
}

#[tokio::test]
async fn a_connection_that_broke_the_protocol_is_not_used_again() {
    let home = Home::new();
    let listener = home.listen();
    let client = PluginClient::new(home.socket(), 1);
    let host = async {
        let mut peer = Peer::accept(&listener).await;
        peer.request().await.expect("a request");
        peer.stream
            .write_all(b"{\"id\": 999, \"result\": 1}\n")
            .await
            .expect("written");
        assert!(peer.request().await.is_none());
    };
    let (result, ()) = tokio::join!(client.call(load(), LIMIT), host);
    assert_eq!(
        result.expect_err("another call").to_string(),
        "rewards.score: the plug-in host answered call 999 instead of 1"
    );
}

#[tokio::test]
async fn a_request_that_no_line_can_hold_is_refused() {
    let home = Home::new();
    let client = PluginClient::new(home.socket(), 1);
    let samples = [Sample {
        response: "x".repeat(MAX_LINE_BYTES),
        ..Sample::default()
    }];
    let call = PluginCall::Filter {
        path: "filters.keep",
        args: &Value::Null,
        samples: &samples,
    };
    assert_eq!(
        client
            .call(call, LIMIT)
            .await
            .expect_err("too large")
            .label(),
        "too_large"
    );
}
