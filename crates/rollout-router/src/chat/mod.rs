//! Turns: requests of a session that are recorded.
//!
//! ```text
//!   request --read, rewrite--> call (a task) --> engine --> reply --check--> commit --> client
//!                                ^      |           `-- a stream with ids: its deltas go to the client at once, its end after the commit
//!                                |      `-- all clients gone: abort by id, wait for the last word
//!                                `-- a retry of the same request joins
//! ```
//!
//! The session's lock is held to prepare and to commit, never while the engine works. A turn is recorded, or the client is told that
//! it was not.

mod call;
mod dialect;
mod exchange;
mod stream;
mod turn;

pub(crate) use dialect::Dialect;
pub(crate) use turn::{Waiter, lost, turn};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};

use crate::body::Body;
use crate::error::ApiError;
use crate::headers;

/// An answer that several clients may get.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(body: impl Into<Bytes>) -> Self {
        let mut reply = Self {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: body.into(),
        };
        reply.headers.insert(CONTENT_TYPE, headers::JSON);
        reply
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::full(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// How far a turn has come, for everybody who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// What may be told of the answer before it is there. The end of the answer is among it once the turn is recorded.
    pub(crate) events: Vec<Bytes>,
    /// The answer.
    pub(crate) reply: Option<Reply>,
}

impl From<&ApiError> for Reply {
    fn from(error: &ApiError) -> Self {
        Self {
            status: error.status(),
            headers: error.headers(),
            body: error.body(),
        }
    }
}
