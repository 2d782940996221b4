//! The tokenizer's files of the model: these names, and nothing else of its directory.

use std::io;
use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use rollout_driver::tokenizer_files::DIGEST;
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// What a tokenizer consists of, with its type.
pub(super) const FILES: [(&str, &str); 5] = [
    ("tokenizer.json", "application/json"),
    ("tokenizer_config.json", "application/json"),
    (CHAT_TEMPLATE, "text/plain; charset=utf-8"),
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
    #[error("this sidecar was started without --model-dir and --hub-cache")]
    NoDirectory,
    /// The hub's cache does not have the model yet.
    #[error("the revision {revision} of {model} was not downloaded yet")]
    NotDownloaded {
        /// The model.
        model: String,
        /// Its revision.
        revision: String,
    },
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

/// Where the files are.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) model: ModelPlace,
    /// The chat template that the engine has instead of the model's own.
    pub(super) chat_template: Option<PathBuf>,
}

/// Where a model's files are.
#[derive(Debug, Clone, Default)]
pub(super) enum ModelPlace {
    /// Out of reach.
    #[default]
    Nowhere,
    /// A directory.
    Directory(PathBuf),
    /// The cache of a hub's client, which the engine fills.
    HubCache {
        cache: PathBuf,
        model: String,
        revision: String,
    },
}

impl ModelPlace {
    /// The directory of the files, once it is there.
    async fn directory(&self) -> Result<PathBuf, NoFile> {
        match self {
            Self::Nowhere => Err(NoFile::NoDirectory),
            Self::Directory(directory) => Ok(directory.clone()),
            Self::HubCache {
                cache,
                model,
                revision,
            } => {
                // As huggingface_hub lays it out: a reference's file has the commit that it stands for.
                let own = cache.join(format!("models--{}", model.replace('/', "--")));
                let commit = tokio::fs::read_to_string(own.join("refs").join(revision)).await;
                let commit = commit.as_deref().map_or(revision.as_str(), str::trim);
                let snapshot = own.join("snapshots").join(commit);
                if tokio::fs::try_exists(&snapshot).await.unwrap_or(false) {
                    return Ok(snapshot);
                }
                Err(NoFile::NotDownloaded {
                    model: model.clone(),
                    revision: revision.clone(),
                })
            }
        }
    }
}

/// The file of this name. What is opened is one of our names, never the caller's text.
pub(super) async fn serve(place: &Place, name: &str) -> Result<Response<Body>, NoFile> {
    let known = FILES.into_iter().find(|(known, _)| *known == name);
    let (name, kind) = known.ok_or_else(|| NoFile::NotServed(name.chars().take(100).collect()))?;
    let path = match &place.chat_template {
        Some(template) if name == CHAT_TEMPLATE => template.clone(),
        _ => place.model.directory().await?.join(name),
    };
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => NoFile::Missing(name),
        _ => NoFile::Unreadable {
            name,
            problem: error.to_string(),
        },
    };
    // Looked at before it is opened: a pipe would never open.
    let metadata = tokio::fs::metadata(&path).await.map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(NoFile::Missing(name));
    }
    let mut file = File::open(&path).await.map_err(unreadable)?;
    let length = metadata.len();
    let digest = digest(&mut file, length).await.map_err(unreadable)?;
    file.rewind().await.map_err(unreadable)?;
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
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{DIGEST}{digest}\"")) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

async fn digest(file: &mut File, length: u64) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut whole = file.take(length);
    loop {
        let read = whole.read(&mut piece).await?;
        if read == 0 {
            break;
        }
        hash.update(piece.get(..read).unwrap_or_default());
    }
    let digits = hash.finalize();
    Ok(digits
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}
