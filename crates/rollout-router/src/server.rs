//! The two listeners.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::router::Router;
use crate::service::Service;

/// The router cannot listen as it was told.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anybody could control it.
    #[error(
        "the control port listens on {0}, which is not a loopback address: set a control token, or listen on 127.0.0.1"
    )]
    OpenControlPort(SocketAddr),
    /// The listener is broken.
    #[error("the listener has no address")]
    Address(#[source] io::Error),
}

/// Sockets to serve on.
#[derive(Debug)]
pub struct Listeners {
    /// For agents and launchers.
    pub agents: TcpListener,
    /// For driver, controller and people.
    pub control: TcpListener,
}

impl Router {
    /// Checks that these listeners may be served.
    ///
    /// # Errors
    /// The control port would be open to anybody.
    pub fn check(&self, listeners: &Listeners) -> Result<(), ServeError> {
        let control = listeners.control.local_addr();
        let control = control.map_err(ServeError::Address)?;
        if self.inner().config.control_token.is_none() && !control.ip().is_loopback() {
            return Err(ServeError::OpenControlPort(control));
        }
        Ok(())
    }

    /// Serves until `cancel`, then ends what is in flight, all within the shutdown time.
    ///
    /// # Errors
    /// The control port would be open to anybody.
    pub async fn serve(
        &self,
        listeners: Listeners,
        cancel: CancellationToken,
    ) -> Result<(), ServeError> {
        self.check(&listeners)?;
        let Listeners { agents, control } = listeners;
        let agents_address = agents.local_addr().map_err(ServeError::Address)?;
        let config = &self.inner().config;
        self.inner().advertise(format!("http://{agents_address}"));
        let connections = TaskTracker::new();
        let acceptors = TaskTracker::new();
        let drain = CancellationToken::new();
        let accepting = CancellationToken::new();
        for (listener, service) in [
            (agents, self.agents_service()),
            (control, self.control_service()),
        ] {
            let acceptor = Acceptor {
                service,
                header_read: config.times.header_read,
                header_bytes: config.limits.header_bytes,
                permits: Arc::new(Semaphore::new(config.limits.connections)),
                connections: connections.clone(),
                drain: drain.clone(),
            };
            let accepting = accepting.clone();
            acceptors.spawn(async move {
                accepting
                    .run_until_cancelled(acceptor.accept(listener))
                    .await;
            });
        }
        cancel.cancelled().await;
        let begun = Instant::now();
        // Clients that ask now are told that the rollout is closed; those that wait get their last word.
        self.end_work(begun).await;
        connections.close();
        let said_all = async {
            tokio::select! {
                () = self.inner().last_call.quiet(config.times.linger) => {}
                () = connections.wait() => {}
            }
        };
        let _ = tokio::time::timeout_at(begun + config.times.shutdown / 4 * 3, said_all).await;
        accepting.cancel();
        drain.cancel();
        acceptors.close();
        let ended =
            async { tokio::join!(self.end_rest(begun), acceptors.wait(), connections.wait()) };
        let _ = tokio::time::timeout_at(begun + config.times.shutdown, ended).await;
        Ok(())
    }
}

struct Acceptor {
    service: Service,
    header_read: Duration,
    header_bytes: usize,
    permits: Arc<Semaphore>,
    connections: TaskTracker,
    drain: CancellationToken,
}

impl Acceptor {
    async fn accept(self, listener: TcpListener) {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                return;
            };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, or a connection that was gone before it was taken.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let connection = self.serve_connection(stream);
            self.connections.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
    }

    fn serve_connection(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let _ = stream.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_read)
            .max_buf_size(self.header_bytes.max(64 << 10))
            .half_close(false)
            .serve_connection(
                TokioIo::new(stream),
                TowerToHyperService::new(self.service.clone()),
            );
        let drain = self.drain.clone();
        async move {
            tokio::pin!(connection);
            tokio::select! {
                result = connection.as_mut() => log_end(result),
                () = drain.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    log_end(connection.await);
                }
            }
        }
    }
}

fn log_end(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}
