//! What an answer means for a file of which a part may be here. Pure.

use std::time::Duration;

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
    RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, StatusCode};
use serde::{Deserialize, Serialize};

/// What tells one version of a file from another, in a form that `If-Range` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Version {
    /// An entity tag, a strong one.
    Tag(String),
    /// When it was modified.
    Modified(String),
}

impl Version {
    /// As the header has it.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Tag(text) | Self::Modified(text) => text,
        }
    }

    /// A weak tag promises less than the same bytes, and a part of one version could be put after a part of another.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let tag = text(headers, &ETAG).filter(|tag| tag.starts_with('"'));
        let modified = || text(headers, &LAST_MODIFIED).map(|at| Self::Modified(at.to_owned()));
        tag.map(|tag| Self::Tag(tag.to_owned())).or_else(modified)
    }
}

/// What is here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Have {
    /// Bytes, from the beginning.
    pub(super) length: u64,
    /// How many there are in all, where that is known.
    pub(super) total: Option<u64>,
    /// Of which version they are. None: nothing can be added to them.
    pub(super) version: Option<Version>,
}

impl Have {
    /// The byte from which on the rest is asked for; none: everything is.
    pub(super) fn rest(&self) -> Option<(u64, &Version)> {
        let version = self.version.as_ref()?;
        (self.length > 0).then_some((self.length, version))
    }

    pub(super) fn is_whole(&self) -> bool {
        self.total == Some(self.length)
    }
}

/// What to do about an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its body is the file from the beginning: what is here goes.
    Begin {
        total: Option<u64>,
        version: Option<Version>,
        /// It says that it is a web page. Small servers say so of every file whose extension they do not know.
        is_page: bool,
    },
    /// Its body comes after what is here.
    Append { total: Option<u64> },
    /// What is here is everything.
    Whole,
    /// Ask again later.
    Again {
        problem: String,
        after: Option<Duration>,
    },
    /// Ask again, from the beginning.
    Anew(String),
    /// Do not ask again.
    Refused(String),
    /// Too many bytes.
    TooLarge,
}

/// How much may be asked of whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// Most bytes of a file.
    pub(super) most: u64,
    /// Whether credentials were shown.
    pub(super) is_known: bool,
}

/// What an answer means.
pub(super) fn judge(have: &Have, status: StatusCode, headers: &HeaderMap, terms: Terms) -> Verdict {
    let asked = have.rest().map(|(from, _)| from);
    match (status, asked) {
        (StatusCode::OK, _) => whole(headers, terms),
        (StatusCode::PARTIAL_CONTENT, Some(from)) => part(have, from, headers, terms),
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(from)) => {
            if range(headers).is_some_and(|range| range.total == Some(from)) {
                return Verdict::Whole;
            }
            Verdict::Anew("has become shorter".to_owned())
        }
        _ => no_file(status, headers, terms),
    }
}

/// The whole file.
fn whole(headers: &HeaderMap, terms: Terms) -> Verdict {
    if let Some(problem) = no_rows(headers) {
        return Verdict::Refused(problem);
    }
    let total = number(headers, &CONTENT_LENGTH);
    let is_chunked = text(headers, &TRANSFER_ENCODING)
        .is_some_and(|codings| codings.to_ascii_lowercase().contains("chunked"));
    if total.is_none() && !is_chunked {
        let problem = "does not say how long the file is: whether all of it came could not be told; serve it with Content-Length";
        return Verdict::Refused(problem.to_owned());
    }
    if total.is_some_and(|total| total > terms.most) {
        return Verdict::TooLarge;
    }
    let kind = text(headers, &CONTENT_TYPE).unwrap_or_default();
    Verdict::Begin {
        total,
        version: Version::of(headers),
        is_page: kind.to_ascii_lowercase().starts_with("text/html"),
    }
}

/// A part of it.
fn part(have: &Have, from: u64, headers: &HeaderMap, terms: Terms) -> Verdict {
    let Some(range) = range(headers) else {
        return Verdict::Anew("sends a part and does not say which".to_owned());
    };
    if range.start != Some(from) {
        return Verdict::Anew("sends another part than was asked for".to_owned());
    }
    let same = |a: Option<u64>, b: Option<u64>| a.is_none() || b.is_none() || a == b;
    let now = Version::of(headers);
    let changed = now.is_some() && now != have.version;
    if !same(range.total, have.total) || changed {
        return Verdict::Anew("has changed meanwhile".to_owned());
    }
    let total = have.total.or(range.total);
    if total.is_some_and(|total| total > terms.most) {
        return Verdict::TooLarge;
    }
    Verdict::Append { total }
}

/// What can be told from the head of an answer that is no data set.
fn no_rows(headers: &HeaderMap) -> Option<String> {
    let coding = text(headers, &CONTENT_ENCODING)?;
    (!coding.eq_ignore_ascii_case("identity")).then(|| {
        format!(
            "sends the file in the coding {coding} though it was asked for the file as it is: serve plain JSONL"
        )
    })
}

/// What is said of a body that begins like this, and says that it is a web page.
pub(super) fn page(beginning: &[u8]) -> Option<&'static str> {
    let is_markup = beginning.trim_ascii_start().starts_with(b"<");
    is_markup.then_some(
        "is a web page and not a file of rows: take the address from which the file itself is downloaded",
    )
}

/// An answer that has no file.
fn no_file(status: StatusCode, headers: &HeaderMap, terms: Terms) -> Verdict {
    let again = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
    let code = status.as_u16();
    if again {
        return Verdict::Again {
            problem: format!("answered {status}"),
            after: number(headers, &RETRY_AFTER).map(Duration::from_secs),
        };
    }
    Verdict::Refused(match status {
        StatusCode::UNAUTHORIZED if terms.is_known => {
            format!("does not take the credentials of secretRef ({code})")
        }
        StatusCode::UNAUTHORIZED => format!(
            "asks for credentials ({code}): put the key token, or username and password, into a Secret and name it in secretRef"
        ),
        StatusCode::FORBIDDEN if terms.is_known => {
            format!("refuses the file to the credentials of secretRef ({code})")
        }
        StatusCode::FORBIDDEN => {
            format!(
                "refuses the file ({code}): a signed URL that has expired, or one that needs secretRef"
            )
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            format!("has no such file ({code})")
        }
        _ => format!("answered {status} instead of a file"),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct ContentRange {
    start: Option<u64>,
    total: Option<u64>,
}

/// `bytes 5-9/10`, `bytes 5-9/*` or `bytes */10`.
fn range(headers: &HeaderMap) -> Option<ContentRange> {
    let (range, total) = text(headers, &CONTENT_RANGE)?
        .strip_prefix("bytes ")?
        .split_once('/')?;
    let start = range
        .split_once('-')
        .and_then(|(start, _)| start.trim().parse().ok());
    Some(ContentRange {
        start,
        total: total.trim().parse().ok(),
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    text(headers, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        most: 1000,
        is_known: false,
    };

    fn headers(these: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        these.iter().map(pair).collect()
    }

    fn tag() -> Version {
        Version::Tag("\"a\"".to_owned())
    }

    /// Five of ten bytes.
    fn half() -> Have {
        Have {
            length: 5,
            total: Some(10),
            version: Some(tag()),
        }
    }

    fn of(have: &Have, status: u16, these: &[(&'static str, &str)]) -> Verdict {
        let status = StatusCode::from_u16(status).unwrap();
        judge(have, status, &headers(these), TERMS)
    }

    #[test]
    fn a_strong_tag_comes_before_a_date_and_a_weak_one_counts_for_nothing() {
        let version = |these: &[(&'static str, &str)]| match of(&Have::default(), 200, these) {
            Verdict::Begin { total, version, .. } => (total, version),
            other => panic!("{other:?}"),
        };
        let modified = ("last-modified", "Mon, 30 Nov 2026 10:00:00 GMT");
        let length = ("content-length", "10");
        assert_eq!(
            version(&[length, ("etag", "\"a\""), modified]),
            (Some(10), Some(tag()))
        );
        let (_, weak) = version(&[length, ("etag", "W/\"a\""), modified]);
        assert_eq!(weak.unwrap().text(), modified.1);
        assert_eq!(version(&[length, ("etag", "W/\"a\"")]).1, None);
        assert_eq!(version(&[("transfer-encoding", "chunked")]), (None, None));
    }

    #[test]
    fn the_rest_is_added_only_to_what_it_belongs_to() {
        let with =
            |range: &str, tag: &str| of(&half(), 206, &[("content-range", range), ("etag", tag)]);
        assert_eq!(
            with("bytes 5-9/10", "\"a\""),
            Verdict::Append { total: Some(10) }
        );
        assert_eq!(
            with("bytes 5-7/*", "\"a\""),
            Verdict::Append { total: Some(10) }
        );
        for (range, tag) in [
            ("bytes 4-9/10", "\"a\""),
            ("bytes 5-9/11", "\"a\""),
            ("bytes 5-9/10", "\"b\""),
            ("rows 5-9/10", "\"a\""),
        ] {
            assert!(
                matches!(with(range, tag), Verdict::Anew(_)),
                "{range} {tag}"
            );
        }
        assert!(matches!(of(&half(), 206, &[]), Verdict::Anew(_)));
        // Nobody asked for a part.
        let unasked = of(&Have::default(), 206, &[("content-range", "bytes 0-4/10")]);
        assert!(matches!(unasked, Verdict::Refused(_)), "{unasked:?}");
    }

    #[test]
    fn a_server_that_sends_everything_again_or_something_new_begins_anew() {
        let again = of(&half(), 200, &[("content-length", "12"), ("etag", "\"b\"")]);
        let version = Some(Version::Tag("\"b\"".to_owned()));
        assert_eq!(
            again,
            Verdict::Begin {
                total: Some(12),
                version,
                is_page: false
            }
        );
    }

    #[test]
    fn nothing_is_left_of_a_file_that_is_whole() {
        let unknown = Have {
            total: None,
            ..half()
        };
        assert_eq!(
            of(&unknown, 416, &[("content-range", "bytes */5")]),
            Verdict::Whole
        );
        let shorter = of(&unknown, 416, &[("content-range", "bytes */3")]);
        assert!(matches!(shorter, Verdict::Anew(_)), "{shorter:?}");
        assert!(matches!(of(&unknown, 416, &[]), Verdict::Anew(_)));
    }

    #[test]
    fn what_is_no_file_is_told_and_what_may_pass_is_asked_again() {
        let said = |status, these: &[(&'static str, &str)]| match of(&half(), status, these) {
            Verdict::Refused(problem) => problem,
            other => panic!("{status}: {other:?}"),
        };
        assert_eq!(said(404, &[]), "has no such file (404)");
        assert!(said(401, &[]).contains("name it in secretRef"));
        assert!(said(403, &[]).contains("has expired"));
        assert_eq!(said(204, &[]), "answered 204 No Content instead of a file");
        let length = ("content-length", "10");
        assert!(said(200, &[length, ("content-encoding", "gzip")]).contains("coding gzip"));
        assert!(said(200, &[]).contains("how long"));
        for status in [408, 425, 429, 500, 502, 503, 504] {
            let after = of(&half(), status, &[("retry-after", "7")]);
            let Verdict::Again { after, .. } = after else {
                panic!("{status}: {after:?}");
            };
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
        let known = Terms {
            is_known: true,
            ..TERMS
        };
        let refused = judge(&half(), StatusCode::UNAUTHORIZED, &HeaderMap::new(), known);
        let words = "does not take the credentials of secretRef (401)";
        assert_eq!(refused, Verdict::Refused(words.to_owned()));
    }

    #[test]
    fn a_page_is_what_says_so_and_looks_like_one() {
        let headers = [
            ("content-length", "10"),
            ("content-type", "Text/HTML; charset=utf-8"),
        ];
        let says = of(&Have::default(), 200, &headers);
        assert!(
            matches!(says, Verdict::Begin { is_page: true, .. }),
            "{says:?}"
        );
        assert_ne!(page(b"\n<!DOCTYPE html>"), None);
        assert_eq!(page(b"{\"prompt\": \"<b>\"}"), None);
    }

    #[test]
    fn too_much_is_known_from_the_head() {
        let large = of(&Have::default(), 200, &[("content-length", "1001")]);
        assert_eq!(large, Verdict::TooLarge);
        let unknown = Have {
            total: None,
            ..half()
        };
        let large = of(&unknown, 206, &[("content-range", "bytes 5-9/1001")]);
        assert_eq!(large, Verdict::TooLarge);
    }
}
