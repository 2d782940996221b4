//! Directories that only their user can enter.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// A directory with mode 0700 and a name that nobody can guess; dropping it removes it and all that is in it.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    path: PathBuf,
}

impl PrivateDirectory {
    pub(crate) fn create(parent: &Path, kind: &str) -> io::Result<Self> {
        let path =
            std::path::absolute(parent)?.join(format!("{kind}-{:032x}", rand::random::<u128>()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(directory = %self.path.display(), %error, "a private directory cannot be removed");
        }
    }
}
