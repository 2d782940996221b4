//! Bodies: what we send, and how a request's body is read.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::error::ApiError;
use crate::relay::Relay;
use crate::sse::EventStream;

/// Any error of a body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Full(Option<Bytes>),
    Relay(Box<Relay>),
    Events(Box<EventStream>),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self(Kind::Full(None))
    }

    /// These bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self(Kind::Full((!bytes.is_empty()).then_some(bytes)))
    }

    pub(crate) fn relay(relay: Relay) -> Self {
        Self(Kind::Relay(Box::new(relay)))
    }

    pub(crate) fn events(events: EventStream) -> Self {
        Self(Kind::Events(Box::new(events)))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Relay(relay) => Pin::new(relay).poll_frame(context),
            Kind::Events(events) => Pin::new(events).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Relay(relay) => relay.is_end_stream(),
            Kind::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Relay(relay) => relay.size_hint(),
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

/// Reads a whole body, bounded in size and time.
pub(crate) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    limit: usize,
    deadline: Duration,
) -> Result<Bytes, ApiError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let announced: Option<usize> = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match tokio::time::timeout(deadline, collect(body, announced, limit)).await {
        Ok(read) => read,
        Err(_) => Err(ApiError::RequestTimeout),
    }
}

async fn collect<B>(body: B, announced: Option<usize>, limit: usize) -> Result<Bytes, ApiError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    const TRUSTED: usize = 1 << 20;
    let mut body = std::pin::pin!(body);
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::BadRequest(format!("the request body broke off: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if joined.is_empty() {
            match first.take() {
                None => {
                    if data.len() > limit {
                        return Err(too_large(limit));
                    }
                    first = Some(data);
                    continue;
                }
                Some(start) => {
                    joined.reserve(announced.unwrap_or(0).min(TRUSTED).max(start.len()));
                    joined.extend_from_slice(&start);
                }
            }
        }
        if joined.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        joined.extend_from_slice(&data);
    }
    Ok(first.unwrap_or_else(|| joined.freeze()))
}

fn too_large(limit: usize) -> ApiError {
    ApiError::TooLarge(format!("the request body is larger than {limit} bytes"))
}
