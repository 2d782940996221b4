//! Tokenizer files from the engines: their sidecars serve them (docs/protocol.md section 6).
//!
//! ```text
//!   name --lookup--> addresses --the first that answers--> every file of one engine --> <ledger>/tokenizer/  (whole, or not at all)
//! ```
//!
//! Guarantees: bounded in size and, once an engine is there, in time; tried again until the deadline; a file has the digest that its engine named; all files come from one
//! engine, since during an update two engines may have different ones. A driver that starts again in the same attempt uses what it has.
//!
//! Caveat: an engine that has no `tokenizer.json` is no failure: it then tokenizes prompts by itself.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::ETAG;
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::fs;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{DriverConfig, TokenizerSource, seconds};
use crate::digest::hex;
use crate::error::DriverError;

/// What a tokenizer consists of. The first one has to be there.
pub const FILES: [&str; 5] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
];

/// What the digest in an entity tag begins with.
pub const DIGEST: &str = "sha256:";

/// Largest file; the largest vocabularies have 40 MB.
const LARGEST: u64 = 256 << 20;
/// Longest wait for a connection, and between two pieces of a file.
const STEP: Duration = Duration::from_secs(10);
/// Pause before the first of several tries; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Engines that are tried in one try.
const MOST_ENGINES: usize = 8;
/// Says that a directory is whole, and what is in it.
const MARK: &str = "fetched.json";

/// What is in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    attempt: u64,
    url: String,
    /// None: the engines have no tokenizer.
    digest: Option<String>,
}

/// Why a try did not work.
#[derive(Debug, thiserror::Error)]
enum TryError {
    #[error("{host} cannot be looked up: {source}")]
    Lookup { host: String, source: io::Error },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error("{url}: {source}")]
    Http { url: String, source: reqwest::Error },
    #[error("{url} answered {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url} sent nothing for {STEP:?}")]
    Stalled { url: String },
    #[error("{url} is larger than {LARGEST} bytes")]
    TooLarge { url: String },
    #[error("{url} is not what its engine says it is: {digest} instead of {told}")]
    Damaged {
        url: String,
        digest: String,
        told: String,
    },
    #[error("{}: {source}", path.display())]
    Disk { path: PathBuf, source: io::Error },
}

impl TryError {
    /// Whether all engines are away: that is nobody's failure, and waited for until the job's own deadlines.
    fn is_nobody_there(&self) -> bool {
        match self {
            Self::Lookup { .. } | Self::NoAddress { .. } => true,
            Self::Http { source, .. } => source.is_connect(),
            Self::Status { .. }
            | Self::Stalled { .. }
            | Self::TooLarge { .. }
            | Self::Damaged { .. }
            | Self::Disk { .. } => false,
        }
    }
}

/// Puts a directory in place of a URL in the configuration. The URL stays when `stop` is cancelled meanwhile.
///
/// # Errors
/// The files did not come within the deadline, or a prompt needs a chat template and the engines have no tokenizer.
pub async fn resolve(
    mut config: DriverConfig,
    stop: &CancellationToken,
) -> Result<DriverConfig, DriverError> {
    let Some(TokenizerSource::Engines(url)) = config.tokenizer.clone() else {
        return Ok(config);
    };
    let patience = seconds(config.timeouts.tokenizer_seconds);
    let directory = config.ledger_dir.join("tokenizer");
    let refuse = |problem: String| DriverError::Tokenizer { problem };
    let parsed: Url = url
        .parse()
        .map_err(|error| refuse(format!("{url} is no URL: {error}")))?;
    let wanted = Mark {
        attempt: config.job.attempt,
        url,
        digest: None,
    };
    let mark = if let Some(mark) = kept(&directory, &wanted).await {
        mark
    } else {
        let fetching = fetch_within(&parsed, &directory, wanted, patience);
        match stop.run_until_cancelled(fetching).await {
            Some(mark) => mark?,
            None => return Ok(config),
        }
    };
    config.tokenizer = mark
        .digest
        .map(|digest| TokenizerSource::Fetched { directory, digest });
    if config.tokenizer.is_none() {
        if config.spec.dataset.apply_chat_template {
            let problem = "the engines have none to give: name its files in the pool's spec.tokenizer, or remove dataset.applyChatTemplate";
            return Err(refuse(problem.to_owned()));
        }
        tracing::warn!(
            "the engines have no tokenizer files to give: they tokenize prompts themselves"
        );
    }
    Ok(config)
}

/// What an earlier process of the same attempt fetched.
async fn kept(directory: &Path, wanted: &Mark) -> Option<Mark> {
    let text = fs::read(directory.join(MARK)).await.ok()?;
    let mark: Mark = serde_json::from_slice(&text).ok()?;
    let is_it = mark.attempt == wanted.attempt && mark.url == wanted.url;
    is_it.then_some(mark)
}

async fn fetch_within(
    url: &Url,
    directory: &Path,
    wanted: Mark,
    patience: Duration,
) -> Result<Mark, DriverError> {
    let failed = |problem| DriverError::NoTokenizer { problem };
    let mut deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        let trying = fetch(url, directory, &wanted);
        let error = match tokio::time::timeout_at(deadline, trying).await {
            Ok(Ok(mark)) => return Ok(mark),
            Ok(Err(error)) => {
                if error.is_nobody_there() {
                    deadline = Instant::now() + pause + patience;
                }
                error.to_string()
            }
            Err(_) => format!("{url} did not send everything"),
        };
        if Instant::now() + pause >= deadline {
            let limit = patience.as_secs_f64();
            let problem =
                format!("its files did not come from the engines within {limit} s: {error}");
            return Err(failed(problem));
        }
        tracing::warn!(error, "tokenizer files are asked for again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// One try: everything from the first engine that answers.
async fn fetch(url: &Url, directory: &Path, wanted: &Mark) -> Result<Mark, TryError> {
    let mut last = None;
    for address in addresses(url).await? {
        match fetch_from(url, address, directory).await {
            Ok(digest) => {
                let mark = Mark {
                    digest,
                    ..wanted.clone()
                };
                finish(directory, &mark).await?;
                return Ok(mark);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| TryError::NoAddress {
        host: url.authority().to_owned(),
    }))
}

async fn addresses(url: &Url) -> Result<Vec<SocketAddr>, TryError> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(80);
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|source| TryError::Lookup {
        host: host.to_owned(),
        source,
    })?;
    Ok(found.take(MOST_ENGINES).collect())
}

/// The files of one engine. Answers their digest; none: it has no tokenizer.
async fn fetch_from(
    url: &Url,
    address: SocketAddr,
    directory: &Path,
) -> Result<Option<String>, TryError> {
    let host = url.host_str().unwrap_or_default();
    let client = reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(STEP)
        .redirect(reqwest::redirect::Policy::none())
        // Every connection leads to this engine.
        .resolve(host, address)
        .build();
    let client = client.map_err(|source| TryError::Http {
        url: url.to_string(),
        source,
    })?;
    // What an earlier try left.
    match fs::remove_dir_all(directory).await {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(disk(directory)(source));
        }
        _ => {}
    }
    fs::create_dir_all(directory)
        .await
        .map_err(disk(directory))?;
    let mut whole = Sha256::new();
    for name in FILES {
        let url = format!("{}/{name}", url.as_str().trim_end_matches('/'));
        let Some(digest) = file(&client, &url, &directory.join(name)).await? else {
            if name == FILES[0] {
                return Ok(None);
            }
            continue;
        };
        whole.update(format!("{name} {digest}\n"));
    }
    Ok(Some(hex(whole)))
}

/// One file. Answers its digest; none: the engine does not have it.
async fn file(
    client: &reqwest::Client,
    url: &str,
    path: &Path,
) -> Result<Option<String>, TryError> {
    let told_url = || url.to_owned();
    let failed = |source: reqwest::Error| TryError::Http {
        url: told_url(),
        source: source.without_url(),
    };
    let stalled = |_| TryError::Stalled { url: told_url() };
    let asking = tokio::time::timeout(STEP, client.get(url).send());
    let mut answer = asking.await.map_err(stalled)?.map_err(failed)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => {
            tracing::info!(url, "an engine does not have this file");
            return Ok(None);
        }
        status => {
            return Err(TryError::Status {
                url: told_url(),
                status,
            });
        }
    }
    let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
    let told = tag.and_then(|tag| tag.trim_matches('"').strip_prefix(DIGEST));
    let told = told.map(str::to_owned);
    let mut to = fs::File::create(path).await.map_err(disk(path))?;
    let (mut hash, mut length) = (Sha256::new(), 0);
    loop {
        let piece = tokio::time::timeout(STEP, answer.chunk());
        let Some(piece) = piece.await.map_err(stalled)?.map_err(failed)? else {
            break;
        };
        length += piece.len() as u64;
        if length > LARGEST {
            return Err(TryError::TooLarge { url: told_url() });
        }
        hash.update(&piece);
        to.write_all(&piece).await.map_err(disk(path))?;
    }
    to.flush().await.map_err(disk(path))?;
    let digest = hex(hash);
    match told {
        Some(told) if told != digest => Err(TryError::Damaged {
            url: told_url(),
            digest,
            told,
        }),
        _ => Ok(Some(digest)),
    }
}

/// The mark is the last thing that is written: without it, the directory counts for nothing.
async fn finish(directory: &Path, mark: &Mark) -> Result<(), TryError> {
    let path = directory.join(MARK);
    let text = serde_json::to_vec(mark).unwrap_or_default();
    fs::write(&path, text).await.map_err(disk(&path))
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> TryError {
    let path = path.to_owned();
    move |source| TryError::Disk { path, source }
}

#[cfg(test)]
mod tests;
