//! What becomes of a question.

use std::time::Duration;

use bytes::Bytes;
use engine_http::{Asker, Problem, Question, Trust};
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::authority::{Authority, Server, Valid};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
/// No test waits longer for anything.
const SOON: Duration = Duration::from_secs(30);

async fn ask(url: &str, trust: Trust) -> Result<(StatusCode, Bytes), Problem> {
    let asker = Asker::new(SOON, trust, 1 << 10);
    let question = Question {
        method: Method::GET,
        url,
        body: None,
        within: SOON,
    };
    asker.ask(question).await
}

/// The words for a server with such a certificate.
async fn words(names: &[&str], valid: Valid) -> String {
    let ca = Authority::new("ca");
    let server = Server::answering(ca.signs(names, valid), OK).await;
    let url = format!("https://127.0.0.1:{}/", server.port);
    let problem = ask(&url, Trust::only(&ca.pem()).unwrap())
        .await
        .unwrap_err();
    assert!(matches!(problem, Problem::NotTrusted(_)), "{problem:?}");
    problem.words()
}

#[tokio::test]
async fn a_server_whose_ca_is_named_answers() {
    let ca = Authority::new("ca");
    let server = Server::answering(ca.signs(&["127.0.0.1", "localhost"], Valid::Now), OK).await;
    let other = Authority::new("other");
    let bundle = format!("{}{}", other.pem(), ca.pem());
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{}/ping", server.port);
        let (status, body) = ask(&url, Trust::only(&bundle).unwrap()).await.unwrap();
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"hi"[..]));
    }
}

#[tokio::test]
async fn a_certificate_that_does_not_hold_is_told_in_stable_words() {
    assert_eq!(
        words(&["engine.example", "sglang-0"], Valid::Now).await,
        "its certificate is not for 127.0.0.1 but for engine.example, sglang-0: use a name that it has"
    );
    assert_eq!(
        words(&["127.0.0.1"], Valid::Past).await,
        "its certificate has expired: renew it"
    );
    assert_eq!(
        words(&["127.0.0.1"], Valid::Future).await,
        "its certificate is not valid yet: look at its dates, and at the clocks"
    );
}

#[tokio::test]
async fn a_ca_that_nobody_named_is_told() {
    let ca = Authority::new("ca");
    let server = Server::answering(ca.signs(&["127.0.0.1"], Valid::Now), OK).await;
    let url = format!("https://127.0.0.1:{}/", server.port);
    let another = Trust::only(&Authority::new("other").pem()).unwrap();
    for trust in [Trust::public(), another] {
        assert_eq!(
            ask(&url, trust).await.unwrap_err().words(),
            "its certificate is from a CA that is not trusted: name the CA that signed it"
        );
    }
    let anew = Trust::only(&Authority::new("ca").pem()).unwrap();
    assert_eq!(
        ask(&url, anew).await.unwrap_err().words(),
        "its certificate is not signed by the CA of that name that is trusted: was the CA made anew?"
    );
}

#[tokio::test]
async fn the_certificate_of_a_ca_is_none_for_a_server() {
    let ca = Authority::new("ca");
    let server = Server::answering(ca.itself(), OK).await;
    let url = format!("https://127.0.0.1:{}/", server.port);
    let problem = ask(&url, Trust::only(&ca.pem()).unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        problem.words(),
        "its certificate is that of a CA: give it one that a CA has signed"
    );
}

#[tokio::test]
async fn plain_http_on_an_https_address_is_told() {
    let routes = axum::Router::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let url = format!("https://127.0.0.1:{port}/");
    assert_eq!(
        ask(&url, Trust::public()).await.unwrap_err().words(),
        "does not speak TLS: if it speaks plain HTTP, write http://"
    );
}

#[tokio::test]
async fn tls_on_a_plain_address_is_told() {
    let ca = Authority::new("ca");
    let acceptor = ca.signs(&["127.0.0.1"], Valid::Now).acceptor();
    // The acceptor's alert, with the connection kept until it was read.
    let server = Server::of(move |socket| {
        let acceptor = acceptor.clone();
        async move {
            if let Err((_, mut socket)) = acceptor.accept(socket).into_fallible().await {
                // A record of TLS: a fatal alert, "unexpected message".
                let _ = socket.write_all(&[21, 3, 3, 0, 2, 2, 10]).await;
            }
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{}/", server.port);
    assert_eq!(
        ask(&url, Trust::public()).await.unwrap_err().words(),
        "does not answer in plain HTTP: if it speaks TLS, write https://"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_hangs_ends_in_time() {
    let server = Server::of(|mut socket| async move {
        let mut taken = Vec::new();
        let _ = socket.read_to_end(&mut taken).await;
    })
    .await;
    let asker = Asker::new(Duration::from_secs(2), Trust::public(), 1 << 10);
    let url = format!("https://127.0.0.1:{}/", server.port);
    let question = Question {
        method: Method::GET,
        url: &url,
        body: None,
        within: Duration::from_hours(1),
    };
    assert_eq!(
        asker.ask(question).await.unwrap_err().words(),
        "does not finish the TLS handshake within 2 s"
    );
}

#[tokio::test]
async fn a_server_that_hangs_up_and_nobody_at_all_are_told_apart() {
    let server = Server::of(|socket| async move { drop(socket) }).await;
    let url = format!("https://127.0.0.1:{}/", server.port);
    let trust = Trust::public();
    assert_eq!(
        ask(&url, trust.clone()).await.unwrap_err().words(),
        "ends the connection in the TLS handshake: does it speak TLS?"
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(
        ask(&url, trust).await.unwrap_err().words(),
        "takes no connection"
    );
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_cut() {
    let ca = Authority::new("ca");
    let identity = ca.signs(&["127.0.0.1"], Valid::Now);
    let server =
        Server::answering(identity, "HTTP/1.1 200 OK\r\ncontent-length: 4096\r\n\r\n").await;
    let url = format!("https://127.0.0.1:{}/", server.port);
    let asker = Asker::new(SOON, Trust::only(&ca.pem()).unwrap(), 2);
    let question = Question {
        method: Method::POST,
        url: &url,
        body: Some(Bytes::from_static(b"{}")),
        within: SOON,
    };
    let problem = asker.ask(question).await.unwrap_err();
    assert!(
        matches!(problem, Problem::Broken(_) | Problem::TooLong(2)),
        "{problem:?}"
    );
}
