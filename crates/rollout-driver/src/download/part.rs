//! The file as far as it is here, and how a later process finds it.
//!
//! ```text
//!   part, part.json         what has come, and how much of it is certainly on the disk
//!   rows.jsonl, rows.json   the whole file and its digest: written last, and never changed
//! ```

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::answer::{Have, Version};
use super::{DownloadError, Downloaded};
use crate::digest::hex;
use crate::output::is_out_of_space;

const PART: &str = "part";
const PART_MARK: &str = "part.json";
const ROWS: &str = "rows.jsonl";
const ROWS_MARK: &str = "rows.json";

/// Bytes after which what has come is made certain: so many are asked for again after a crash of the node.
const CERTAIN: u64 = 32 << 20;

/// Says what a part is of.
#[derive(Debug, Serialize, Deserialize)]
struct PartMark {
    url_sha256: String,
    have: Have,
}

/// Says that the file is whole.
#[derive(Debug, Serialize, Deserialize)]
struct RowsMark {
    url_sha256: String,
    bytes: u64,
    sha256: String,
}

/// The file, while it comes.
#[derive(Debug)]
pub(super) struct Part {
    directory: PathBuf,
    url_sha256: String,
    file: File,
    hash: Sha256,
    have: Have,
    certain: u64,
}

/// A file that an earlier process fetched from the same URL.
pub(super) async fn fetched(directory: &Path, url_sha256: &str) -> Option<Downloaded> {
    let mark: RowsMark = read(&directory.join(ROWS_MARK)).await?;
    let path = directory.join(ROWS);
    let length = fs::metadata(&path).await.ok()?.len();
    let is_it = mark.url_sha256 == url_sha256 && mark.bytes == length;
    is_it.then_some(Downloaded {
        path,
        digest: mark.sha256,
    })
}

impl Part {
    /// What an earlier process left of the same URL, else nothing.
    pub(super) async fn open(directory: &Path, url_sha256: &str) -> Result<Self, DownloadError> {
        let failed = disk(directory);
        fs::create_dir_all(directory).await.map_err(failed)?;
        // Without its mark a file of an earlier process says nothing.
        remove(&directory.join(ROWS_MARK)).await?;
        remove(&directory.join(ROWS)).await?;
        let path = directory.join(PART);
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).await.map_err(disk(&path))?;
        let mut part = Self {
            directory: directory.to_owned(),
            url_sha256: url_sha256.to_owned(),
            file,
            hash: Sha256::new(),
            have: Have::default(),
            certain: 0,
        };
        let mark: Option<PartMark> = read(&directory.join(PART_MARK)).await;
        let mark = mark.filter(|mark| mark.url_sha256 == url_sha256);
        if let Some(mark) = mark
            && part.read_again(mark.have.length).await.is_ok()
        {
            part.certain = mark.have.length;
            part.have = mark.have;
        } else {
            part.hash = Sha256::new();
        }
        part.cut().await?;
        Ok(part)
    }

    pub(super) fn have(&self) -> &Have {
        &self.have
    }

    /// Everything that is here goes: a file of this version and length comes from its beginning.
    pub(super) async fn begin(
        &mut self,
        total: Option<u64>,
        version: Option<Version>,
    ) -> Result<(), DownloadError> {
        self.have = Have {
            length: 0,
            total,
            version,
        };
        self.hash = Sha256::new();
        self.certain = 0;
        // The mark before the bytes: bytes of one version never have the mark of another.
        self.mark().await?;
        self.cut().await
    }

    /// More of it, and now its length is known.
    pub(super) fn continues(&mut self, total: Option<u64>) {
        self.have.total = total;
    }

    pub(super) async fn append(&mut self, bytes: &[u8]) -> Result<(), DownloadError> {
        let failed = disk(&self.directory.join(PART));
        self.file.write_all(bytes).await.map_err(failed)?;
        self.hash.update(bytes);
        self.have.length += bytes.len() as u64;
        if self.have.length - self.certain >= CERTAIN {
            self.keep().await?;
        }
        Ok(())
    }

    /// Makes certain what has come.
    pub(super) async fn keep(&mut self) -> Result<(), DownloadError> {
        let path = self.directory.join(PART);
        self.file.flush().await.map_err(disk(&path))?;
        self.file.sync_data().await.map_err(disk(&path))?;
        self.certain = self.have.length;
        self.mark().await
    }

    /// It is whole.
    pub(super) async fn finish(mut self) -> Result<Downloaded, DownloadError> {
        let (part, path) = (self.directory.join(PART), self.directory.join(ROWS));
        self.file.flush().await.map_err(disk(&part))?;
        self.file.sync_all().await.map_err(disk(&part))?;
        fs::rename(&part, &path).await.map_err(disk(&path))?;
        let mark = RowsMark {
            url_sha256: self.url_sha256.clone(),
            bytes: self.have.length,
            sha256: hex(self.hash),
        };
        write(&self.directory.join(ROWS_MARK), &mark).await?;
        remove(&self.directory.join(PART_MARK)).await?;
        Ok(Downloaded {
            path,
            digest: mark.sha256,
        })
    }

    async fn mark(&self) -> Result<(), DownloadError> {
        let mark = PartMark {
            url_sha256: self.url_sha256.clone(),
            have: self.have.clone(),
        };
        write(&self.directory.join(PART_MARK), &mark).await
    }

    /// Hashes what an earlier process left.
    async fn read_again(&mut self, length: u64) -> io::Result<()> {
        let mut left = length;
        let mut block = vec![0; 1 << 20];
        while left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(block.len())
                .min(block.len());
            let count = self.file.read(&mut block[..most]).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.hash.update(&block[..count]);
            left -= count as u64;
        }
        Ok(())
    }

    /// Cuts off what is not known to be good.
    async fn cut(&mut self) -> Result<(), DownloadError> {
        let path = self.directory.join(PART);
        self.file.flush().await.map_err(disk(&path))?;
        let length = self.have.length;
        self.file.set_len(length).await.map_err(disk(&path))?;
        let sought = self.file.seek(SeekFrom::Start(length)).await;
        sought.map(drop).map_err(disk(&path))
    }
}

/// What cannot be read is as good as not there.
async fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).await.ok()?).ok()
}

/// Whole, or not at all.
async fn write(path: &Path, mark: &impl Serialize) -> Result<(), DownloadError> {
    let new = path.with_extension("new");
    let text = serde_json::to_vec(mark).unwrap_or_default();
    fs::write(&new, text).await.map_err(disk(&new))?;
    fs::rename(&new, path).await.map_err(disk(path))
}

async fn remove(path: &Path) -> Result<(), DownloadError> {
    match fs::remove_file(path).await {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(disk(path)(source)),
        _ => Ok(()),
    }
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> DownloadError + use<> {
    let path = path.to_owned();
    move |source| {
        if is_out_of_space(&source) {
            DownloadError::NoSpace { path }
        } else {
            DownloadError::Disk { path, source }
        }
    }
}
