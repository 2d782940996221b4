//! Which headers cross the router.

use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName,
    PROXY_AUTHENTICATE, SERVER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

pub(crate) const ROUTING_KEY: HeaderName = HeaderName::from_static("x-smg-routing-key");
pub(crate) const ROLLOUT_JOB: HeaderName = HeaderName::from_static("x-rollout-job");
pub(crate) const ROLLOUT_ID: HeaderName = HeaderName::from_static("x-rollout-id");
pub(crate) const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

const TO_ENGINE: [HeaderName; 5] = [
    CONTENT_TYPE,
    ACCEPT,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

const NOT_TO_CLIENT: [HeaderName; 12] = [
    CONNECTION,
    CONTENT_LENGTH,
    DATE,
    SERVER,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHENTICATE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("vary"),
];

/// What an engine gets of a client's headers: what describes the body and the trace. No credentials, no routing.
pub(crate) fn to_engine(client: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(6);
    for name in &TO_ENGINE {
        if let Some(value) = client.get(name) {
            headers.insert(name.clone(), value.clone());
        }
    }
    headers
}

/// What a client gets of an engine's headers: not what belongs to the connection, nor what our own server writes.
pub(crate) fn to_client(engine: HeaderMap) -> HeaderMap {
    let mut headers = engine;
    for name in &NOT_TO_CLIENT {
        headers.remove(name);
    }
    headers
}

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start())
}
