//! How long one ladder waits for a router that does not answer: once, over all of its rungs.
//!
//! A router that restarts in place refuses connections for a moment, so a call is repeated for a while (every call of the ladder is safe
//! to repeat). When that time is spent, or when a router is connected to and hangs, it counts as gone: the rungs that follow are
//! reported with the cause at once.

use std::time::Duration;

use parking_lot::Mutex;
use sglang_client::ClientError;
use tokio::time::Instant;

use crate::error::chain;
use crate::router::RouterClient;

/// Time for a router without a connection, over all rungs of a ladder.
const REFUSED: Duration = Duration::from_secs(5);

/// The pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Time in which a router that let a call run out of time has to say that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_millis(1500);

/// Why a rung was not climbed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unclimbed {
    /// The router answered, but not what was asked for.
    #[error("{}", chain(.0))]
    Call(ClientError),
    /// The router cannot be reached.
    #[error("the router is gone: {0}")]
    RouterGone(String),
}

/// What is left of the patience of one ladder.
#[derive(Debug)]
pub(super) struct Patience {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: Duration,
    gone: Option<String>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                left: REFUSED,
                gone: None,
            }),
        }
    }
}

impl Patience {
    /// A new ladder begins.
    pub(super) fn renew(&self) {
        *self.state.lock() = State {
            left: REFUSED,
            gone: None,
        };
    }

    /// Why the router counts as gone, once it does.
    pub(super) fn gone(&self) -> Option<String> {
        self.state.lock().gone.clone()
    }

    /// Calls the router, and again while it cannot be reached.
    pub(super) async fn call<T, F>(
        &self,
        router: &RouterClient,
        call: impl Fn() -> F,
    ) -> Result<T, Unclimbed>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        loop {
            if let Some(cause) = self.gone() {
                return Err(Unclimbed::RouterGone(cause));
            }
            let began = Instant::now();
            let error = match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match &error {
                ClientError::NotReached { .. } => {
                    tokio::time::sleep(PAUSE).await;
                    self.spend(began.elapsed(), &error);
                }
                // How long the call had run is not time without a router.
                ClientError::Broken { .. } => {
                    tokio::time::sleep(PAUSE).await;
                    self.spend(PAUSE, &error);
                }
                ClientError::TimedOut { .. } => {
                    if !router.is_alive(SIGN_OF_LIFE).await {
                        self.spend(REFUSED, &error);
                    }
                    return Err(Unclimbed::Call(error));
                }
                ClientError::Status { .. } | ClientError::BadReply { .. } => {
                    return Err(Unclimbed::Call(error));
                }
            }
        }
    }

    fn spend(&self, time: Duration, error: &ClientError) {
        let mut state = self.state.lock();
        state.left = state.left.saturating_sub(time);
        if state.left.is_zero() {
            state.gone.get_or_insert_with(|| chain(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn router(url: &str) -> RouterClient {
        RouterClient::new(url, None, "j", Duration::from_mins(1)).unwrap()
    }

    /// A router that accepts connections and never answers.
    async fn deaf() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, url)
    }

    #[tokio::test]
    async fn a_refused_connection_is_repeated_for_a_while_over_all_calls() {
        let (listener, url) = deaf().await;
        drop(listener);
        let router = router(&url);
        let patience = Patience::default();
        patience.state.lock().left = PAUSE * 3;
        let fence = || patience.call(&router, || router.fence(None, Duration::from_secs(10)));
        let first = fence().await.unwrap_err().to_string();
        assert!(
            first.starts_with("the router is gone: cannot connect to"),
            "{first}"
        );
        assert!(first.contains("refused"), "with its cause: {first}");
        assert_eq!(patience.state.lock().left, Duration::ZERO);
        assert_eq!(fence().await.unwrap_err().to_string(), first);
        patience.renew();
        assert_eq!(patience.gone(), None, "another ladder begins anew");
    }

    #[tokio::test]
    async fn a_router_that_hangs_is_asked_once_whether_it_lives() {
        let (_listener, url) = deaf().await;
        let router = router(&url);
        let patience = Patience::default();
        let fence = || patience.call(&router, || router.fence(None, Duration::from_millis(100)));
        let error = fence().await.unwrap_err();
        assert!(
            matches!(error, Unclimbed::Call(ClientError::TimedOut { .. })),
            "{error:?}"
        );
        let error = fence().await.unwrap_err();
        assert!(matches!(error, Unclimbed::RouterGone(_)), "{error:?}");
    }
}
