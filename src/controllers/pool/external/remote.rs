//! What the Pod found out that asks a pool's engines with their key (docs/protocol.md section 7).

use std::time::Duration;

use engine_http::{Asker, Problem, Question, Trust};
use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::controllers::pool::looks::Looks;
use crate::plan::pool::external::Survey;

/// Longest wait for a connection, and for an answer.
const CONNECT: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(5);
/// Longest answer that is read: a thousand engines and their lacks.
const LONGEST: usize = 4 << 20;
/// Questions in a row without an answer after which that is told.
const SILENCE: u8 = 3;

/// Asks that Pod.
pub(super) struct Remote {
    asker: Asker,
    url: String,
}

impl Remote {
    pub(super) fn new(address: &str) -> Self {
        Self {
            asker: Asker::new(CONNECT, Trust::public(), LONGEST),
            url: format!("{address}/survey"),
        }
    }

    /// Asks as long as `is_there`, and keeps what it hears; `changed` is called after each change.
    pub(super) async fn run(
        self,
        known: &Mutex<Survey>,
        is_there: impl Fn() -> bool,
        changed: impl Fn(),
    ) {
        let mut looks = Looks::new(is_there);
        let mut silent: u8 = 0;
        while looks.go_on().await {
            let after = match self.ask().await {
                Ok(survey) => {
                    silent = 0;
                    survey
                }
                Err(why) => {
                    silent = silent.saturating_add(1);
                    if silent < SILENCE {
                        continue;
                    }
                    // What the engines said last may still hold.
                    Survey {
                        trouble: Some(format!("the Pod that asks the engines {why}")),
                        ..known.lock().clone()
                    }
                }
            };
            let before = std::mem::replace(&mut *known.lock(), after.clone());
            if before != after {
                changed();
            }
        }
    }

    async fn ask(&self) -> Result<Survey, String> {
        let question = Question {
            method: Method::GET,
            url: &self.url,
            body: None,
            within: LIMIT,
        };
        match self.asker.ask(question).await {
            Ok((StatusCode::OK, body)) => serde_json::from_slice(&body)
                .map_err(|_| "does not answer as this version's does".to_owned()),
            Ok((status, _)) => Err(format!("answers {}", status.as_u16())),
            Err(problem) => Err(Problem::words(&problem)),
        }
    }
}
