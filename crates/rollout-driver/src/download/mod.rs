//! A data set that is behind a URL: fetched once, whole, before the job begins.
//!
//! ```text
//!   URL --GET, from where it broke off--> part --whole--> <ledger>/dataset/rows.jsonl + its digest
//! ```
//!
//! **Guarantees.** Bounded in time and size. What breaks off goes on with the rest (`Range`, `If-Range`), in this process or in the next one; bytes of
//! two versions of a file never meet. A body that is shorter than its server said is not the file. A process that starts again uses the file that is
//! here and asks nobody: all samples of a ledger come from one data set. Credentials go to the URL's own host alone, redirects are followed five
//! times, from an encrypted address to encrypted ones only.
//!
//! **What is asked again.** A server that cannot be reached, hangs, breaks off or answers 408, 425, 429 or 5xx, with growing pauses, until nothing
//! has come for [`Limits::patience`]. Whatever else it answers is told at once.
//!
//! **Caveats.** `http` and `https` alone, certificates of the CAs that browsers trust, no proxies. A version is told by its entity tag or its date; a
//! file with neither is fetched from the beginning after each break.

mod answer;
mod credentials;
mod error;
mod part;
mod server;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine_http::Trust;
use http_body_util::BodyExt;
use reqwest::Url;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use answer::{Terms, Verdict, judge, page};
use part::Part;
use server::{Answer, Server, Silence, shown};

pub use credentials::Credentials;
pub use error::DownloadError;

use crate::digest::hex;

/// The directory of a job's data set, beside its ledger.
pub const DIRECTORY: &str = "dataset";

/// A file that is wanted.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Where it is: `http` or `https`.
    pub url: &'a str,
    /// What its server is shown.
    pub credentials: Option<Credentials>,
    /// A directory for it alone.
    pub directory: &'a Path,
    /// Who may vouch for its server.
    pub trust: Trust,
}

/// How long and how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// How long nothing may come.
    pub patience: Duration,
    /// How long all of it may take.
    pub longest: Duration,
    /// The longest wait for a connection, for the head of an answer, and between two pieces of its body.
    pub step: Duration,
    /// The pause before the first of several tries; it doubles.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// The most bytes.
    pub most: u64,
}

impl Limits {
    /// Those of production, with this patience.
    pub fn with_patience(patience: Duration) -> Self {
        Self {
            patience,
            longest: Duration::from_hours(4),
            step: Duration::from_secs(30),
            first_pause: Duration::from_millis(250),
            longest_pause: Duration::from_secs(15),
            most: 16 << 30,
        }
    }
}

/// A file that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// Where.
    pub path: PathBuf,
    /// SHA-256 of its bytes, in hex.
    pub digest: String,
}

/// Whether a URL is one of these.
pub fn is_fetched(url: &str) -> bool {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        ["http", "https"]
            .iter()
            .any(|one| scheme.eq_ignore_ascii_case(one))
    })
}

/// What messages call a file: its URL without query, name and password.
pub fn name(url: &str) -> String {
    url.parse::<Url>().map_or_else(
        |_| url.split(['?', '#']).next().unwrap_or_default().to_owned(),
        |url| shown(&url),
    )
}

/// A file that an earlier process fetched.
pub async fn fetched(url: &str, directory: &Path) -> Option<Downloaded> {
    part::fetched(directory, &key(url)).await
}

/// Fetches a file, or what is missing of it; does nothing when it is here.
///
/// # Errors
/// See [`DownloadError`]. What has come stays for the next call.
pub async fn fetch(wanted: Wanted<'_>, limits: Limits) -> Result<Downloaded, DownloadError> {
    if let Some(here) = fetched(wanted.url, wanted.directory).await {
        return Ok(here);
    }
    let Wanted {
        url: text,
        credentials,
        directory,
        trust,
    } = wanted;
    let url = server::parse(text)?;
    let mut part = Part::open(directory, &key(text)).await?;
    let fetching = Fetching {
        server: Server::new(&url, credentials.as_ref(), trust, limits.step),
        terms: Terms {
            most: limits.most,
            is_known: credentials.is_some(),
        },
        url: &url,
        limits,
    };
    let coming = tokio::time::timeout(limits.longest, fetching.all(&mut part));
    match coming.await {
        Ok(Ok(())) => part.finish().await,
        Ok(Err(error)) => {
            leave(part).await;
            Err(error)
        }
        Err(_) => {
            let have = part.have().length;
            leave(part).await;
            Err(DownloadError::TooSlow {
                url: shown(&url),
                limit: limits.longest,
                have,
            })
        }
    }
}

/// Keeps what has come for a later call. What cannot be kept is fetched again.
async fn leave(mut part: Part) {
    if let Err(error) = part.keep().await {
        tracing::warn!(%error, "what has come of the data set is not kept");
    }
}

/// Names a URL in marks: it may have a signature in it.
fn key(url: &str) -> String {
    hex(Sha256::new().chain_update(url))
}

struct Fetching<'a> {
    server: Server<'a>,
    url: &'a Url,
    terms: Terms,
    limits: Limits,
}

/// How one try ended that failed.
enum Trouble {
    /// Another may work.
    Again {
        problem: String,
        after: Option<Duration>,
    },
    /// None will.
    Ends(DownloadError),
}

impl Trouble {
    fn again(problem: String) -> Self {
        Self::Again {
            problem,
            after: None,
        }
    }
}

impl Fetching<'_> {
    async fn all(&self, part: &mut Part) -> Result<(), DownloadError> {
        let limits = self.limits;
        // A server that begins anew each time, and breaks off at the same place, makes no progress.
        let mut furthest = part.have().length;
        let mut heard = Instant::now();
        let mut pause = limits.first_pause;
        while !part.have().is_whole() {
            let (problem, after) = match self.once(part).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Ends(error)) => return Err(error),
                Err(Trouble::Again { problem, after }) => (problem, after),
            };
            let have = part.have().length;
            if have > furthest {
                furthest = have;
                heard = Instant::now();
                pause = limits.first_pause;
            }
            let rest = after.map_or(pause, |after| {
                after.clamp(pause, limits.longest_pause.max(pause))
            });
            if heard.elapsed() + rest >= limits.patience {
                return Err(DownloadError::NotInTime {
                    url: shown(self.url),
                    patience: limits.patience,
                    have,
                    problem,
                });
            }
            tracing::warn!(
                url = shown(self.url),
                have,
                problem,
                "the data set is asked for again"
            );
            tokio::time::sleep(rest).await;
            pause = (pause * 2).min(limits.longest_pause);
        }
        Ok(())
    }

    /// One question and what comes of it; well when the file is whole.
    async fn once(&self, part: &mut Part) -> Result<(), Trouble> {
        let answer = self.server.ask(part.have()).await;
        let Answer { by, response } = answer.map_err(|silence| match silence {
            Silence::Again(problem) => Trouble::again(problem),
            Silence::Refused(problem) => self.refused(None, problem),
        })?;
        let (head, mut body) = response.into_parts();
        let mut may_be_page = false;
        match judge(part.have(), head.status, &head.headers, self.terms) {
            Verdict::Begin {
                total,
                version,
                is_page,
            } => {
                part.begin(total, version).await.map_err(Trouble::Ends)?;
                may_be_page = is_page;
            }
            Verdict::Append { total } => part.continues(total),
            Verdict::Whole => return Ok(()),
            Verdict::Again { problem, after } => return Err(Trouble::Again { problem, after }),
            Verdict::Anew(problem) => {
                part.begin(None, None).await.map_err(Trouble::Ends)?;
                return Err(Trouble::again(problem));
            }
            Verdict::Refused(problem) => return Err(self.refused(Some(&by), problem)),
            Verdict::TooLarge => return Err(self.too_large()),
        }
        loop {
            let piece = tokio::time::timeout(self.limits.step, body.frame()).await;
            let piece = match piece {
                Ok(None) => break,
                Ok(Some(Ok(piece))) => piece,
                Ok(Some(Err(error))) => {
                    return Err(Trouble::again(format!("broke off: {}", cause(&error))));
                }
                Err(_) => {
                    let seconds = self.limits.step.as_secs_f64();
                    return Err(Trouble::again(format!("sent nothing for {seconds} s")));
                }
            };
            let Ok(bytes) = piece.into_data() else {
                continue;
            };
            if std::mem::take(&mut may_be_page)
                && let Some(problem) = page(&bytes)
            {
                return Err(self.refused(Some(&by), problem.to_owned()));
            }
            if part.have().length + bytes.len() as u64 > self.terms.most {
                return Err(self.too_large());
            }
            part.append(&bytes).await.map_err(Trouble::Ends)?;
        }
        let have = part.have();
        match have.total {
            Some(total) if have.length > total => {
                part.begin(None, None).await.map_err(Trouble::Ends)?;
                Err(Trouble::again("sent more than it said".to_owned()))
            }
            Some(total) if have.length < total => Err(Trouble::again(format!(
                "sent a part that ends before the file does, of {total} bytes"
            ))),
            _ => Ok(()),
        }
    }

    /// `by`: who said so in the end.
    fn refused(&self, by: Option<&Url>, problem: String) -> Trouble {
        let url = match by.filter(|by| by.origin() != self.url.origin()) {
            None => shown(self.url),
            Some(by) => format!("{} leads to {}, which", shown(self.url), shown(by)),
        };
        Trouble::Ends(DownloadError::Refused { url, problem })
    }

    fn too_large(&self) -> Trouble {
        Trouble::Ends(DownloadError::TooLarge {
            url: shown(self.url),
            limit: self.terms.most,
        })
    }
}

/// The innermost cause.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.last().map(ToString::to_string).unwrap_or_default()
}
