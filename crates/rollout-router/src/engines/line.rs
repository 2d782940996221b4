//! The line of one request to its engine: every answer on it is a sign of life, and it is cut when the engine falls silent.

use std::sync::Arc;

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Engine;
use crate::error::ApiError;

/// A line to an engine.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    engine: Arc<Engine>,
    cut: CancellationToken,
}

impl Line {
    /// A line that is cut when the engine is given up from now on.
    pub(crate) fn to(engine: &Arc<Engine>) -> Self {
        Self {
            engine: Arc::clone(engine),
            cut: engine.lines(),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// A piece of an answer came.
    pub(crate) fn heard(&self) {
        self.engine.note_heard();
    }

    /// Does something at the engine, until it falls silent.
    pub(crate) async fn unless_silent<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, ApiError> {
        let done = self.cut.run_until_cancelled(work).await;
        done.ok_or_else(|| self.silent())
    }

    /// Waits for the cut.
    pub(crate) fn cut(&self) -> WaitForCancellationFutureOwned {
        self.cut.clone().cancelled_owned()
    }

    pub(crate) fn silent(&self) -> ApiError {
        ApiError::EngineSilent(self.engine.url().to_owned())
    }
}
