//! Engines that run already: asked who they are before anything starts.
//!
//! What is found is a sentence for the person who gave the URL. A router in between would name its own port.

use std::time::Duration;

use serde_json::Value;
use sglang_client::{Backoff, Client, ClientError, ClientOptions};
use tokio::task::JoinSet;

/// How long an engine may take to answer. `/server_info` asks the scheduler, which may be in the middle of a long prefill.
const PATIENCE: Duration = Duration::from_secs(20);

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
    #[error("engine {url}: no client can be made for it")]
    Client { url: String, source: reqwest::Error },
}

/// Asks all engines at once; the first answer that is no engine's is the error.
pub(super) async fn all(urls: &[String]) -> Result<(), EngineError> {
    let mut asked = JoinSet::new();
    for url in urls {
        let url = url.clone();
        asked.spawn(async move { one(&url).await });
    }
    while let Some(answer) = asked.join_next().await {
        // A task that was cancelled has not been answered; nothing cancels them.
        answer.unwrap_or(Ok(()))?;
    }
    Ok(())
}

async fn one(url: &str) -> Result<(), EngineError> {
    let options = ClientOptions {
        control: PATIENCE,
        backoff: Backoff::none(),
        ..ClientOptions::default()
    };
    let client = Client::new(url, options).map_err(|source| EngineError::Client {
        url: url.to_owned(),
        source,
    })?;
    for (path, member) in [("/model_info", "model_path"), ("/server_info", "version")] {
        let answer: Result<Value, _> = client.call(reqwest::Method::GET, path, None).await;
        judge(url, path, member, answer)?;
    }
    Ok(())
}

/// Whether an answer is one of SGLang: an object with a certain member.
fn judge(
    url: &str,
    path: &'static str,
    member: &str,
    answer: Result<Value, ClientError>,
) -> Result<(), EngineError> {
    let url = url.to_owned();
    let not_sglang = |problem: String| EngineError::NotSglang {
        url: url.clone(),
        problem,
    };
    match answer {
        Ok(body) if body.get(member).is_some_and(Value::is_string) => Ok(()),
        Ok(_) => Err(not_sglang(format!("{path} answered JSON without {member}"))),
        Err(ClientError::NotReached { source, .. }) => Err(EngineError::Dead {
            url,
            problem: root_cause(&source),
        }),
        Err(ClientError::TimedOut { within, .. }) => Err(EngineError::Silent {
            url,
            path,
            problem: format!("no reply within {} s", within.as_secs()),
        }),
        Err(ClientError::Broken { source, .. }) => Err(EngineError::Silent {
            url,
            path,
            problem: root_cause(&source),
        }),
        Err(ClientError::Status { status, .. }) if matches!(status, 401 | 403) => {
            Err(EngineError::WantsKey { url, status })
        }
        Err(ClientError::Status { status, body, .. }) if status >= 500 => {
            Err(EngineError::NotReady {
                url,
                path,
                status,
                message: body.message.chars().take(200).collect(),
            })
        }
        Err(ClientError::Status { status, .. }) => {
            Err(not_sglang(format!("{path} answered {status}")))
        }
        Err(ClientError::BadReply { .. }) => {
            Err(not_sglang(format!("{path} did not answer with JSON")))
        }
    }
}

/// The innermost cause, which names the refusal itself.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
