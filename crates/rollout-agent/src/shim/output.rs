//! Reads the output of a process for as long as something holds it open.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Child,
    task::JoinSet,
    time::timeout,
};

use super::log_tail::LogTail;
use crate::echo::Echo;

/// How long output that was written before the end may take to arrive.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// The output of one process, standard output and error in one.
#[derive(Debug)]
pub(super) struct Output {
    tail: Arc<Mutex<LogTail>>,
    readers: JoinSet<()>,
}

impl Output {
    /// Takes the process's streams.
    pub(super) fn of(child: &mut Child, echo: &Echo) -> Self {
        let mut output = Self {
            tail: Arc::default(),
            readers: JoinSet::new(),
        };
        if let Some(stream) = child.stdout.take() {
            output
                .readers
                .spawn(read(stream, Arc::clone(&output.tail), echo.clone()));
        }
        if let Some(stream) = child.stderr.take() {
            output
                .readers
                .spawn(read(stream, Arc::clone(&output.tail), echo.clone()));
        }
        output
    }

    /// What was printed last, once the process is gone.
    pub(super) async fn last(mut self) -> Option<String> {
        let all = async { while self.readers.join_next().await.is_some() {} };
        // Something that cannot be ended may hold the stream open.
        let _ = timeout(LAST_OUTPUT, all).await;
        self.tail.lock().text()
    }
}

async fn read(mut stream: impl AsyncRead + Unpin, tail: Arc<Mutex<LogTail>>, echo: Echo) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length) = stream.read(&mut buffer).await {
        if length == 0 {
            return;
        }
        tail.lock().push(&buffer[..length]);
        echo.push(&buffer[..length]);
    }
}
