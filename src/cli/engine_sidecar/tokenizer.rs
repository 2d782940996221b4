//! The tokenizer's files of the model: these names, and nothing else of its directory.

use std::io;
use std::path::Path;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// What a tokenizer consists of, with its type.
const FILES: [(&str, &str); 5] = [
    ("tokenizer.json", "application/json"),
    ("tokenizer_config.json", "application/json"),
    ("chat_template.jinja", "text/plain; charset=utf-8"),
    ("special_tokens_map.json", "application/json"),
    ("generation_config.json", "application/json"),
];

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Why a file is not served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoFile {
    /// Not one of them.
    #[error("{0} is no file of a tokenizer: {names}", names = FILES.map(|(name, _)| name).join(", "))]
    NotServed(String),
    /// There is no directory.
    #[error("this sidecar was started without --model-dir")]
    NoDirectory,
    /// The model does not have it.
    #[error("the model has no {0}")]
    Missing(&'static str),
    /// It is there and cannot be read.
    #[error("{name} cannot be read: {problem}")]
    Unreadable {
        /// The file.
        name: &'static str,
        /// Why.
        problem: String,
    },
}

/// The file of this name. What is opened is one of our names, never the caller's text.
pub(super) async fn serve(directory: Option<&Path>, name: &str) -> Result<Response<Body>, NoFile> {
    let known = FILES.into_iter().find(|(known, _)| *known == name);
    let (name, kind) = known.ok_or_else(|| NoFile::NotServed(name.chars().take(100).collect()))?;
    let directory = directory.ok_or(NoFile::NoDirectory)?;
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => NoFile::Missing(name),
        _ => NoFile::Unreadable {
            name,
            problem: error.to_string(),
        },
    };
    let path = directory.join(name);
    // Looked at before it is opened: a pipe would never open.
    let metadata = tokio::fs::metadata(&path).await.map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(NoFile::Missing(name));
    }
    let file = File::open(&path).await.map_err(unreadable)?;
    let length = metadata.len();
    // Not more than was announced, should it grow meanwhile.
    let pieces = stream::try_unfold(file.take(length), |mut file| async {
        let mut piece = Vec::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        Ok::<_, io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}
