//! The body of a streamed answer whose turn is still going on.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use http_body::{Body as HttpBody, Frame};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{error_event, of_reply};
use crate::body::BodyError;
use crate::chat::{Progress, Reply, Waiter, lost};

const COMMENT: &[u8] = b": keep-alive\n\n";

/// Tells a client what it may know of a turn as soon as it may know it, with comments in between.
pub(crate) struct EventStream {
    pieces: BoxStream<'static, Bytes>,
    comments: Interval,
    /// Nothing was sent yet.
    fresh: bool,
}

impl EventStream {
    /// Follows a turn from its first event on. `with_comment` begins with one: the client has waited for long.
    pub(crate) fn new(
        waiter: Waiter,
        period: Duration,
        include_usage: bool,
        with_comment: bool,
    ) -> Self {
        let mut comments = tokio::time::interval_at(Instant::now() + period, period);
        comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let follower = Follower {
            waiter,
            seen: 0,
            include_usage,
        };
        let pieces = unfold(Some(follower), |follower| async {
            let (piece, follower) = follower?.next().await;
            Some((piece, follower))
        });
        let pieces = pieces.filter(|piece| std::future::ready(!piece.is_empty()));
        Self {
            pieces: pieces.boxed(),
            comments,
            fresh: with_comment,
        }
    }
}

/// How far a client has followed a turn.
struct Follower {
    waiter: Waiter,
    seen: usize,
    include_usage: bool,
}

impl Follower {
    /// The next piece; without a follower it is the last one.
    async fn next(mut self) -> (Bytes, Option<Self>) {
        match self.step().await {
            Step::Events(piece) => (piece, Some(self)),
            Step::Reply(reply) => (self.last(&reply), None),
        }
    }

    async fn step(&mut self) -> Step {
        let seen = self.seen;
        let news = |progress: &Progress| progress.events.len() > seen || progress.reply.is_some();
        let Ok(progress) = self.waiter.wait_for(news).await else {
            return Step::Reply(lost());
        };
        if progress.events.len() > seen {
            self.seen = progress.events.len();
            return Step::Events(Bytes::from(progress.events[seen..].concat()));
        }
        Step::Reply(progress.reply.clone().unwrap_or_else(lost))
    }

    fn last(&self, reply: &Reply) -> Bytes {
        if !reply.status.is_success() {
            return Bytes::from(error_event(&reply.body));
        }
        if self.seen > 0 {
            // The events that were passed on have the end, too.
            return Bytes::new();
        }
        Bytes::from(of_reply(&reply.body, self.include_usage))
    }
}

enum Step {
    Events(Bytes),
    Reply(Reply),
}

impl fmt::Debug for EventStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EventStream")
    }
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let greeting = std::mem::take(&mut this.fresh);
        if let Poll::Ready(piece) = this.pieces.poll_next_unpin(context) {
            this.comments.reset();
            return Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))));
        }
        if greeting || this.comments.poll_tick(context).is_ready() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
        }
        Poll::Pending
    }
}
