//! Engines that run already: asked who they are before anything starts.
//!
//! What is found is a sentence for the person who gave the URL. A router in between would name its own port.

use std::time::Duration;

use bytes::Bytes;
use engine_http::{Asker, Problem, Question, Trust, UNKNOWN_CA};
use http::{Method, StatusCode};
use serde_json::Value;
use sglang_client::ErrorBody;
use tokio::task::JoinSet;

/// How long an engine may take to answer. `/server_info` asks the scheduler, which may be in the middle of a long prefill.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest answer that is read; `/server_info` has 40 KB.
const LONGEST: usize = 4 << 20;

/// A reason why an engine cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error(
        "engine {url}: nothing answers there ({problem}); check that SGLang runs, the port, and that it listens on an address that this machine reaches (--host 0.0.0.0)"
    )]
    Dead { url: String, problem: String },
    #[error(
        "engine {url}: it accepts connections and does not answer {path} ({problem}); check its log"
    )]
    Silent {
        url: String,
        path: &'static str,
        problem: String,
    },
    #[error(
        "engine {url}: it hangs up before it answers {path} ({problem}); check its log, or it speaks https: write https://"
    )]
    HangsUp {
        url: String,
        path: &'static str,
        problem: String,
    },
    #[error(
        "engine {url}: it asks for an API key ({status}), and local has none to give; start it without --api-key"
    )]
    WantsKey { url: String, status: u16 },
    #[error(
        "engine {url}: it is not ready ({path} answered {status}: {message}); wait until its log says that it is"
    )]
    NotReady {
        url: String,
        path: &'static str,
        status: u16,
        message: String,
    },
    #[error(
        "engine {url}: it is not SGLang ({problem}); give the base URL of an SGLang server, such as http://HOST:30000"
    )]
    NotSglang { url: String, problem: String },
    #[error("engine {url}: {problem}")]
    NotTrusted { url: String, problem: String },
    #[error(
        "engine {url}: {UNKNOWN_CA}, with --engine-ca FILE or in spec.external.tls of the pool"
    )]
    UnknownCa { url: String },
}

/// Asks all engines at once; the first answer that is no engine's is the error.
pub(super) async fn all(urls: &[String], trust: &Trust) -> Result<(), EngineError> {
    let mut asked = JoinSet::new();
    for url in urls {
        let (url, trust) = (url.clone(), trust.clone());
        asked.spawn(async move { one(&url, trust).await });
    }
    while let Some(answer) = asked.join_next().await {
        // A task that was cancelled has not been answered; nothing cancels them.
        answer.unwrap_or(Ok(()))?;
    }
    Ok(())
}

async fn one(url: &str, trust: Trust) -> Result<(), EngineError> {
    let asker = Asker::new(CONNECT, trust, LONGEST);
    for (path, member) in [("/model_info", "model_path"), ("/server_info", "version")] {
        let question = Question {
            method: Method::GET,
            url: &format!("{}{path}", url.trim_end_matches('/')),
            body: None,
            within: PATIENCE,
        };
        judge(url, path, member, asker.ask(question).await)?;
    }
    Ok(())
}

/// Whether an answer is one of SGLang: an object with a certain member.
fn judge(
    url: &str,
    path: &'static str,
    member: &str,
    answer: Result<(StatusCode, Bytes), Problem>,
) -> Result<(), EngineError> {
    let url = url.to_owned();
    match answer {
        Ok((status, body)) => of_answer(url, path, member, status, &body),
        Err(Problem::NotReached(problem)) => Err(EngineError::Dead { url, problem }),
        Err(Problem::NotTrusted(why)) if why == UNKNOWN_CA => Err(EngineError::UnknownCa { url }),
        Err(problem) if problem.lasts() => Err(EngineError::NotTrusted {
            url,
            problem: problem.words(),
        }),
        Err(Problem::TimedOut(within)) => Err(EngineError::Silent {
            url,
            path,
            problem: format!("no reply within {} s", within.as_secs()),
        }),
        // A server that wants TLS may answer a plain request with the end of the connection.
        Err(Problem::Broken(problem)) if url.starts_with("http://") => {
            Err(EngineError::HangsUp { url, path, problem })
        }
        Err(Problem::Broken(problem)) => Err(EngineError::Silent { url, path, problem }),
        Err(problem) => Err(EngineError::Silent {
            url,
            path,
            problem: problem.words(),
        }),
    }
}

fn of_answer(
    url: String,
    path: &'static str,
    member: &str,
    status: StatusCode,
    body: &[u8],
) -> Result<(), EngineError> {
    let code = status.as_u16();
    let not_sglang = |url, problem| Err(EngineError::NotSglang { url, problem });
    if matches!(code, 401 | 403) {
        return Err(EngineError::WantsKey { url, status: code });
    }
    if status.is_server_error() {
        let message = ErrorBody::parse(body).message;
        return Err(EngineError::NotReady {
            url,
            path,
            status: code,
            message: message.chars().take(200).collect(),
        });
    }
    if !status.is_success() {
        return not_sglang(url, format!("{path} answered {code}"));
    }
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return not_sglang(url, format!("{path} did not answer with JSON"));
    };
    if body.get(member).is_some_and(Value::is_string) {
        return Ok(());
    }
    not_sglang(url, format!("{path} answered JSON without {member}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(url: &str, problem: Problem) -> String {
        let judged = judge(url, "/model_info", "model_path", Err(problem));
        judged.unwrap_err().to_string()
    }

    #[test]
    fn a_server_that_hangs_up_may_want_https() {
        let broken = || Problem::Broken("connection closed before message completed".to_owned());
        assert_eq!(
            said("http://e:1", broken()),
            "engine http://e:1: it hangs up before it answers /model_info (connection closed before message completed); check its log, or it speaks https: write https://"
        );
        assert!(!said("https://e:1", broken()).contains("write https://"));
    }

    #[test]
    fn a_ca_that_nobody_named_is_named_on_the_command_line() {
        let told = said("https://e:1", Problem::NotTrusted(UNKNOWN_CA.to_owned()));
        assert!(
            told.ends_with("name the CA that signed it, with --engine-ca FILE or in spec.external.tls of the pool"),
            "{told}"
        );
    }
}
