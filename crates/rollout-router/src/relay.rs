//! An engine's answer on its way to the client, frame by frame.
//!
//! The request's registration lives in the body. When the client goes away the body is dropped, with no chunk needed to notice, and
//! the request is aborted at its engine.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::abort::Aborter;
use crate::body::BodyError;
use crate::engines::Line;
use crate::flights::Ticket;

/// A request that is at an engine. Dropping it aborts the request, unless it has ended.
#[derive(Debug)]
pub(crate) struct InFlight {
    ticket: Option<Ticket>,
    aborter: Aborter,
}

impl InFlight {
    pub(crate) fn new(ticket: Ticket, aborter: Aborter) -> Self {
        Self {
            ticket: Some(ticket),
            aborter,
        }
    }

    pub(crate) fn ticket(&mut self) -> Option<&mut Ticket> {
        self.ticket.as_mut()
    }

    /// The engine has said its last word.
    pub(crate) fn ended(&mut self) {
        if let Some(mut ticket) = self.ticket.take() {
            ticket.prove();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.aborter.orphaned(ticket);
        }
    }
}

/// The body.
#[derive(Debug)]
pub(crate) struct Relay {
    incoming: Incoming,
    flight: InFlight,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    line: Line,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Relay {
    pub(crate) fn new(incoming: Incoming, line: &Line, flight: InFlight, idle: Duration) -> Self {
        let mut relay = Self {
            incoming,
            flight,
            idle,
            timer: Box::pin(tokio::time::sleep(idle)),
            line: line.clone(),
            cut: Box::pin(line.cut()),
        };
        if relay.incoming.is_end_stream() {
            relay.flight.ended();
        }
        relay
    }
}

impl HttpBody for Relay {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(context) {
            match &frame {
                Some(Ok(_)) => {
                    this.line.heard();
                    let next = Instant::now() + this.idle;
                    this.timer.as_mut().reset(next);
                    if this.incoming.is_end_stream() {
                        this.flight.ended();
                    }
                }
                // Whether the engine works on is not known: dropping the body aborts the request.
                Some(Err(_)) => {}
                None => this.flight.ended(),
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)));
        }
        if this.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(this.line.silent().into())));
        }
        ready!(this.timer.as_mut().poll(context));
        // Dropping the body after this error aborts the request.
        Poll::Ready(Some(Err("the engine stopped answering".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
