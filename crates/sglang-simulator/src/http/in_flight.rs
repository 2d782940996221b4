//! Counts of HTTP requests by path. A request counts as active until its body is sent or dropped.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use crate::engine::report::PathReport;

type Paths = BTreeMap<(String, String), PathReport>;

/// The counters of a simulator, by path and method.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    paths: Mutex<Paths>,
}

/// One active request.
pub(crate) struct Active {
    key: (String, String),
    activity: Arc<Activity>,
}

impl Activity {
    pub(crate) fn begin(self: &Arc<Self>, path: String, method: &str) -> Active {
        let key = (path, method.to_owned());
        let mut paths = self.paths.lock();
        let counts = paths.entry(key.clone()).or_default();
        counts.requests += 1;
        counts.active += 1;
        Active {
            key,
            activity: self.clone(),
        }
    }

    /// The counters by path and method.
    pub(crate) fn snapshot(&self) -> Paths {
        self.paths.lock().clone()
    }

    /// The counters by path.
    pub(crate) fn by_path(&self) -> BTreeMap<String, PathReport> {
        let mut paths: BTreeMap<String, PathReport> = BTreeMap::new();
        for ((path, _), counts) in self.snapshot() {
            let sum = paths.entry(path).or_default();
            sum.requests += counts.requests;
            sum.active += counts.active;
            for (status, count) in counts.statuses {
                *sum.statuses.entry(status).or_default() += count;
            }
        }
        paths
    }
}

impl Active {
    /// Keeps the request active until the body of its answer is gone.
    pub(crate) fn attach(self, response: Response) -> Response {
        {
            let mut paths = self.activity.paths.lock();
            let counts = paths.entry(self.key.clone()).or_default();
            *counts
                .statuses
                .entry(response.status().as_u16())
                .or_default() += 1;
        }
        response.map(|body| {
            Body::new(Guarded {
                body,
                _active: self,
            })
        })
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(counts) = self.activity.paths.lock().get_mut(&self.key) {
            counts.active -= 1;
        }
    }
}

struct Guarded {
    body: Body,
    _active: Active,
}

impl http_body::Body for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
