//! Who has the file: one question at a time, wherever it leads.

use std::time::Duration;

use bytes::Bytes;
use engine_http::{Connector, Problem, Trust, UNKNOWN_CA};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, IF_RANGE, LOCATION, RANGE, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use reqwest::Url;

use super::answer::Have;
use super::{Credentials, DownloadError};

/// Redirects that one question follows.
const MOST_REDIRECTS: usize = 5;
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("rollout-operator/", env!("CARGO_PKG_VERSION")));

/// A URL without what could be a secret: a signature in its query, a password before its host.
pub(super) fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // Refused only for URLs that have no host, and so no name either.
    let _ = (shown.set_username(""), shown.set_password(None));
    shown.to_string()
}

/// Reads a URL of the job.
pub(super) fn parse(text: &str) -> Result<Url, DownloadError> {
    let refuse = |problem: &str| DownloadError::NotAUrl {
        url: text.split(['?', '#']).next().unwrap_or_default().to_owned(),
        problem: problem.to_owned(),
    };
    let url = Url::parse(text).map_err(|error| refuse(&format!("is not a URL: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(DownloadError::NotAUrl {
            url: shown(&url),
            problem: "has credentials in it, which whoever may see the job would see: put them into a Secret and name it in secretRef".to_owned(),
        });
    }
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        other => Err(refuse(&format!("cannot be fetched by {other}"))),
    }
}

/// An answer and who gave it in the end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) by: Url,
    pub(super) response: Response<Incoming>,
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// It may come.
    Again(String),
    /// It will not.
    Refused(String),
}

/// A client for one file.
#[derive(Debug)]
pub(super) struct Server<'a> {
    client: Client<Connector, Empty<Bytes>>,
    url: &'a Url,
    credentials: Option<&'a Credentials>,
    step: Duration,
}

impl<'a> Server<'a> {
    /// `step`: the longest wait for a connection, and for the head of an answer.
    pub(super) fn new(
        url: &'a Url,
        credentials: Option<&'a Credentials>,
        trust: Trust,
        step: Duration,
    ) -> Self {
        let client = Client::builder(TokioExecutor::new())
            // A connection that was cut is not used again.
            .pool_max_idle_per_host(0)
            .build(Connector::new(step, trust));
        Self {
            client,
            url,
            credentials,
            step,
        }
    }

    /// Asks for what is not here yet.
    pub(super) async fn ask(&self, have: &Have) -> Result<Answer, Silence> {
        let mut url = self.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let response = self.ask_once(&url, have).await?;
            if !is_redirect(response.status()) {
                return Ok(Answer { by: url, response });
            }
            let place = response.headers().get(LOCATION);
            let place = place.and_then(|place| place.to_str().ok());
            url = led_to(&url, place).map_err(Silence::Refused)?;
        }
        Err(Silence::Refused(format!(
            "leads from one address to another, more than {MOST_REDIRECTS} times"
        )))
    }

    async fn ask_once(&self, url: &Url, have: &Have) -> Result<Response<Incoming>, Silence> {
        let mut bare = url.clone();
        bare.set_fragment(None);
        let mut request = Request::get(bare.as_str())
            .header(USER_AGENT, AGENT)
            // The length and the parts of a file are those of its bytes.
            .header(ACCEPT_ENCODING, "identity");
        if let Some((from, version)) = have.rest() {
            request = request
                .header(RANGE, format!("bytes={from}-"))
                .header(IF_RANGE, version.text());
        }
        // Whoever a server leads to gets the file's address, and not the credentials.
        let shown_to = self
            .credentials
            .filter(|_| url.origin() == self.url.origin());
        if let Some(credentials) = shown_to {
            request = request.header(AUTHORIZATION, credentials.header());
        }
        let request = request.body(Empty::new());
        let request =
            request.map_err(|error| Silence::Refused(format!("cannot be asked: {error}")))?;
        let asking = tokio::time::timeout(self.step, self.client.request(request));
        match asking.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(silence(&Problem::of(&error, url.scheme() == "https"))),
            Err(_) => Err(Silence::Again(format!(
                "does not answer within {} s",
                self.step.as_secs_f64()
            ))),
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where an answer leads.
fn led_to(from: &Url, place: Option<&str>) -> Result<Url, String> {
    let place = place.ok_or("leads elsewhere and does not say where")?;
    let to = from
        .join(place)
        .map_err(|error| format!("leads to something that is no URL: {error}"))?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Ok(to),
        ("https", "http") => Err(format!(
            "leads to {}, which is not encrypted: name that address in url if it is meant",
            shown(&to)
        )),
        (_, other) => Err(format!("leads to a URL of {other}, which is not fetched")),
    }
}

fn silence(problem: &Problem) -> Silence {
    match problem {
        Problem::NotReached(why) => Silence::Again(format!("cannot be reached: {why}")),
        Problem::Broken(why) => Silence::Again(format!("ends the connection: {why}")),
        Problem::NotTrusted(why) if why == UNKNOWN_CA => Silence::Refused(
            "has a certificate of a CA that browsers do not trust, and no other is known for data sets: put the file on a persistentVolumeClaim".to_owned(),
        ),
        lasting if lasting.lasts() => Silence::Refused(lasting.words()),
        other => Silence::Again(other.words()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn what_could_be_a_secret_is_not_shown() {
        let signed = url("https://user:word@store.example/a/rows.jsonl?X-Signature=abc#top");
        assert_eq!(shown(&signed), "https://store.example/a/rows.jsonl");
        let refused = parse("https://user:word@store.example/rows.jsonl").unwrap_err();
        let said = refused.to_string();
        assert!(
            said.starts_with("https://store.example/rows.jsonl: has credentials"),
            "{said}"
        );
        for text in ["https://", "ftp://a/b", "rows.jsonl", "http://[::1/b"] {
            parse(text).unwrap_err();
        }
    }

    #[test]
    fn nobody_is_led_from_an_encrypted_address_to_a_plain_one() {
        let from = url("https://a.example/x/y");
        let to = |place| led_to(&from, Some(place)).map(|url| url.to_string());
        assert_eq!(to("z?a=b").unwrap(), "https://a.example/x/z?a=b");
        assert_eq!(to("//b.example/z").unwrap(), "https://b.example/z");
        assert!(
            to("http://a.example/x/y")
                .unwrap_err()
                .contains("not encrypted")
        );
        assert!(
            to("file:///etc/passwd")
                .unwrap_err()
                .contains("a URL of file")
        );
        assert!(
            led_to(&from, None)
                .unwrap_err()
                .contains("does not say where")
        );
        let plain = led_to(&url("http://a.example/"), Some("https://b.example/"));
        plain.unwrap();
    }
}
