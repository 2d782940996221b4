//! The client of the API server: without the retries of its own that can hold a reconcile for minutes (P4), and with every call counted.
//!
//! No gzip (P1); a watch ends by itself, everything else has the deadline of [`super::calls`] (P3).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::http::header::{HeaderValue, USER_AGENT};
use axum::http::{Method, Request, Response, Uri};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{Layer, Service};

use super::metrics::Metrics;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A client by the usual configuration: in a pod the service account, else `KUBECONFIG`.
pub async fn connect(metrics: Arc<Metrics>) -> Result<Client, kube::Error> {
    let mut config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    // Who reads an audit log sees who it was.
    let agent = concat!("rollout-operator/", env!("CARGO_PKG_VERSION"));
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(agent)));
    let layer = Counted { metrics };
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

#[derive(Clone)]
struct Counted {
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for Counted {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting {
            inner,
            metrics: Arc::clone(&self.metrics),
        }
    }
}

struct Counting<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for Counting<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb(request.method(), request.uri());
        let metrics = Arc::clone(&self.metrics);
        let started = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.called(verb, code, started.elapsed());
            answer
        })
    }
}

/// A bounded set of words, whatever is asked.
fn verb(method: &Method, uri: &Uri) -> &'static str {
    match *method {
        Method::GET if uri.query().unwrap_or_default().contains("watch=true") => "watch",
        Method::GET if is_list(uri.path()) => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// Whether a path names all objects of a kind, in a namespace or everywhere.
fn is_list(path: &str) -> bool {
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let below = match parts.first() {
        Some(&"api") => parts.get(2..),
        Some(&"apis") => parts.get(3..),
        _ => None,
    };
    let (["namespaces", _, kind @ ..] | kind) = below.unwrap_or_default();
    kind.len() == 1
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, Uri};

    use super::verb;

    #[test]
    fn reading_one_object_is_told_from_reading_a_list() {
        let of = |uri: &'static str| verb(&Method::GET, &Uri::from_static(uri));
        for uri in [
            "/api/v1/pods?limit=500",
            "/api/v1/namespaces/rl/pods",
            "/apis/rollout-operator.dev/v1alpha1/rolloutjobs?limit=1",
            "/apis/networking.k8s.io/v1/namespaces/rl/networkpolicies?labelSelector=a",
        ] {
            assert_eq!(of(uri), "list", "{uri}");
        }
        for uri in [
            "/api/v1/namespaces/rl/pods/a",
            "/apis/apps/v1/namespaces/rl/deployments/a/scale",
            "/api/v1/namespaces/rl",
            "/version",
        ] {
            assert_eq!(of(uri), "get", "{uri}");
        }
        assert_eq!(of("/api/v1/pods?watch=true&limit=500"), "watch");
    }
}
