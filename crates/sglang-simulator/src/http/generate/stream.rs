//! The event stream of `/generate`: every chunk repeats everything so far.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use super::answer::{answer_of, running_meta};
use super::{Answer, AnswerOptions, Meta, queue_full};
use crate::engine::{Done, Progress, Ticket};
use crate::http::App;
use crate::http::reply::{self, ApiError};
use crate::scheduler::Nanos;
use crate::wire::text::Detokenizer;

/// Turns a streamed request into chunks.
pub(crate) struct Chunks {
    app: Arc<App>,
    ticket: Ticket,
    options: AnswerOptions,
    known: usize,
    text: String,
    detokenizer: Detokenizer,
    first_sent: Option<Nanos>,
    ended: bool,
}

impl Chunks {
    pub(crate) fn new(app: Arc<App>, ticket: Ticket, options: AnswerOptions) -> Self {
        Self {
            app,
            ticket,
            options,
            known: 0,
            text: String::new(),
            detokenizer: Detokenizer::default(),
            first_sent: None,
            ended: false,
        }
    }

    /// The next chunk; the one with an ending is the last.
    pub(crate) async fn next(&mut self) -> Option<Result<Answer, ApiError>> {
        if self.ended {
            return None;
        }
        let Some(progress) = self.ticket.progress(self.known).await else {
            self.ended = true;
            return Some(Err(ApiError::Dead));
        };
        match progress.done.as_deref() {
            None => Some(Ok(self.running(&progress))),
            Some(Done::QueueFull) => {
                self.ended = true;
                Some(Err(queue_full()))
            }
            Some(Done::Finished(finished)) => {
                self.ended = true;
                let answer = answer_of(&self.app, &self.options, finished, self.first_sent);
                Some(Ok(answer))
            }
        }
    }

    fn running(&mut self, progress: &Progress) -> Answer {
        let job = self.ticket.job().clone();
        for position in self.known..progress.generated {
            let token = job.output.token(position);
            self.text += &self.detokenizer.push(
                &self.app.tokenizer,
                token,
                self.options.text.skip_special_tokens,
            );
        }
        self.known = progress.generated;
        let mut meta = running_meta(
            &self.app,
            &self.options,
            &job,
            progress.times,
            progress.generated,
        );
        if self.first_sent.is_none() {
            let now = self.app.engine.clock.now();
            self.first_sent = Some(now);
            meta.first_sent = Some(self.app.engine.clock.unix(now));
        }
        Answer {
            text: self.text.clone(),
            output_ids: job.output.tokens(progress.generated).to_vec(),
            prompt_token_ids: self
                .options
                .return_prompt_token_ids
                .then(|| job.prompt.to_vec()),
            meta_info: Meta::Full(Box::new(meta)),
            index: None,
            ending: None,
        }
    }

    /// The events of the chunks, by who writes an answer and who gives an error its shape. An engine that died breaks the connection.
    pub(crate) fn into_events(
        self,
        write: impl FnMut(Answer) -> Bytes + Send + 'static,
        shape: fn(ApiError) -> ApiError,
    ) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
        futures_util::stream::unfold((self, write), move |(mut chunks, mut write)| async move {
            let event = match chunks.next().await? {
                Ok(answer) => Ok(write(answer)),
                Err(ApiError::Dead) => Err(std::io::ErrorKind::ConnectionReset.into()),
                Err(error) => Ok(reply::event(&shape(error).into_event())),
            };
            Some((event, (chunks, write)))
        })
    }
}

/// The answer with all chunks of all outputs, as they come.
pub(super) fn response(
    app: &Arc<App>,
    tickets: Vec<Ticket>,
    options: Vec<AnswerOptions>,
    is_batch: bool,
) -> Response {
    let streams = tickets
        .into_iter()
        .zip(options)
        .enumerate()
        .map(|(index, (ticket, options))| {
            let index = is_batch.then_some(index);
            let chunks = Chunks::new(app.clone(), ticket, options);
            let write = move |answer| reply::event(&Answer { index, ..answer });
            chunks.into_events(write, std::convert::identity).boxed()
        });
    let done = futures_util::stream::once(async { Ok(reply::done_event()) });
    let events = futures_util::stream::select_all(streams).chain(done);
    reply::event_stream(Body::from_stream(events))
}

/// A stream that only tells an error.
pub(super) fn error(error: ApiError) -> Response {
    let events = [
        Ok::<_, std::io::Error>(reply::event(&error.into_event())),
        Ok(reply::done_event()),
    ];
    reply::event_stream(Body::from_stream(futures_util::stream::iter(events)))
}

/// A stream that ends where SGLang fails: its headers are out, its end never comes.
pub(super) fn broken() -> Response {
    let lost = Err::<bytes::Bytes, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    reply::event_stream(Body::from_stream(futures_util::stream::iter([lost])))
}
