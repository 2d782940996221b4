//! Requests to handlers. Works with and without sockets.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;

use crate::body::{self, Body};
use crate::chat::{self, Dialect, Reply};
use crate::error::ApiError;
use crate::handlers::{
    abort, claim, collect, create, every_engine, feed, fence, forward, launcher, plain, pod,
    session, workers,
};
use crate::route::{Listener, Route};
use crate::state::Inner;

/// One of the two services of a router.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
    listener: Listener,
}

impl Service {
    pub(crate) fn new(inner: Arc<Inner>, listener: Listener) -> Self {
        Self { inner, listener }
    }

    /// Answers one request.
    pub async fn respond<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let _answering = self.inner.last_call.answering(&parts.method);
        let answer = tokio::select! {
            biased;
            answer = self.serve(&parts, body) => answer,
            () = self.inner.last_call.closing() => Err(ApiError::router_stops()),
        };
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                self.inner.metrics.refused(error.code());
                Reply::from(&error).into_response()
            }
        };
        self.inner.leaving.mark(response.headers_mut());
        response
    }

    async fn serve<B>(&self, parts: &Parts, body: B) -> Result<Response<Body>, ApiError>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        let route = Route::of(self.listener, &parts.method, parts.uri.path())?;
        let open = matches!(route, Route::Health | Route::Ready | Route::Metrics);
        if self.listener == Listener::Control && !open {
            self.inner.check_control_token(&parts.headers)?;
        }
        let limit = self.inner.config.limits.body_bytes;
        let deadline = self.inner.config.times.body_read;
        let body = if parts.method == Method::GET {
            Bytes::new()
        } else {
            body::read(&parts.headers, body, limit, deadline).await?
        };
        self.dispatch(route, parts, body).await
    }

    async fn dispatch(
        &self,
        route: Route,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<Body>, ApiError> {
        let inner = &self.inner;
        match route {
            Route::SessionChat(id) => chat::turn(inner, id, Dialect::Chat, parts, body).await,
            Route::Forward(route) => Box::pin(forward::forward(inner, route, parts, body)).await,
            Route::SessionGenerate(id) => {
                chat::turn(inner, id, Dialect::Generate, parts, body).await
            }
            Route::SessionRaw(id, path) => session::raw(inner, id, path, parts, body).await,
            Route::CreateSession => create::create(inner, &body),
            Route::GetSession(id) => session::get(inner, id),
            Route::DeleteSession(id) => session::delete(inner, id),
            Route::Samples(id) => Box::pin(collect::samples(inner, id, parts, &body)).await,
            Route::SessionOutcome(id) => session::outcome(inner, id, &body),
            Route::AbortRequest => abort::abort_request(inner, &body).await,
            Route::Fence => Box::pin(fence::fence(inner, &body)).await,
            Route::Unfence => fence::unfence(inner, &body),
            Route::AgentAbort => Box::pin(abort::agent_abort(inner, &body)).await,
            Route::PodEnded => pod::ended(inner, &body),
            Route::Outcomes => feed::outcomes(inner, parts.uri.query()).await,
            Route::Demand => feed::demand(inner, parts.uri.query()),
            Route::Claim => Box::pin(claim::claim(inner, parts, &body)).await,
            Route::Heartbeat(id) => launcher::heartbeat(inner, id, parts),
            Route::Events(id) => launcher::events(inner, id, parts).await,
            Route::Result(id) => launcher::result(inner, id, parts, &body),
            Route::Workers => workers::list(inner),
            Route::WorkerUrls => workers::urls(inner),
            Route::AcceptWorker => workers::accept(inner, &body),
            Route::AddWorker => workers::add(inner, parts.uri.query(), &body),
            Route::RemoveWorker => workers::remove(inner, parts.uri.query(), &body),
            Route::GetWorker(name) => workers::get(inner, &name),
            Route::DeleteWorker(name) => workers::delete(inner, &name),
            Route::EveryEngine(path) => {
                every_engine::call(inner, parts.method.clone(), path, body).await
            }
            Route::Health => Ok(plain::health(inner)),
            Route::Ready => Ok(plain::ready(inner)),
            Route::Status => Ok(plain::status(inner)),
            Route::Metrics => plain::metrics(inner),
        }
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.respond(request).await) })
    }
}
