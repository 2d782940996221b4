//! The socket side: one task per connection, HTTP/1.1 as uvicorn serves it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{App, Dropped};

/// uvicorn closes a connection that is idle for so long.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Serves until `cancel`, then until no request is in flight; or until the engine dies, and then closes every connection at once.
pub(crate) async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    cancel: CancellationToken,
) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    let death = app.engine.death().clone();
    let drained = async {
        cancel.cancelled().await;
        app.engine.drain().await;
    };
    tokio::pin!(drained);
    loop {
        tokio::select! {
            () = death.cancelled() => break,
            () = &mut drained => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(app.clone(), stream));
                }
                Err(error) => {
                    // a lost handshake or a full table of descriptors; neither is a reason to stop
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            Some(ended) = connections.join_next(), if !connections.is_empty() => drop(ended),
        }
    }
    drop(listener);
    if !death.is_cancelled() {
        finish_bodies(&app).await;
    }
    connections.shutdown().await;
    Ok(())
}

/// Gives answers that are ready the time to leave.
async fn finish_bodies(app: &App) {
    let patience = Duration::from_secs(2);
    let sent = async {
        while app.activity.by_path().values().any(|path| path.active > 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(patience, sent).await.is_err() {
        tracing::warn!("answers were cut off at the end");
    }
}

async fn connection(app: Arc<App>, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a socket option was not set");
    }
    let death = app.engine.death().clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let app = app.clone();
        async move {
            let response = app.handle(request.map(Body::new)).await;
            send(response)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        result = served => if let Err(error) = result {
            tracing::debug!(%error, "a connection ended");
        },
        () = death.cancelled() => {}
    }
}

/// An answer that must not be sent ends the connection.
fn send(response: Response) -> Result<Response, std::io::Error> {
    if response.extensions().get::<Dropped>().is_some() {
        return Err(std::io::ErrorKind::ConnectionReset.into());
    }
    Ok(response)
}

/// The handler as a service for a router without a socket.
pub(crate) async fn call(
    app: Arc<App>,
    request: axum::extract::Request,
) -> Result<Response, Infallible> {
    Ok(app.handle(request).await)
}
