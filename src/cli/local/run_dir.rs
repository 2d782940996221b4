//! The short-lived directory of one run: sockets and secrets.
//!
//! It is outside of the output directory, because a socket's path is limited to 107 bytes, and it goes with the run. After a `kill -9`
//! the next start removes it: its path is on record before it is there, and stays on record until it is gone.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Begins the name of every such directory; nothing else is ever removed.
const PREFIX: &str = "rollout-";

/// A directory that only this user can enter; dropping it removes it and all that is in it.
#[derive(Debug)]
pub(super) struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// A path that nobody can guess, for [`RunDir::create`].
    pub(super) fn new_path(random: &str) -> io::Result<PathBuf> {
        // Children work elsewhere, and a TMPDIR may be relative.
        std::path::absolute(std::env::temp_dir().join(format!("{PREFIX}{random}")))
    }

    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the run's directory stays until the next start");
        }
    }
}

/// Removes what killed runs left, and answers what could not be removed: what they started may still be writing there.
pub(super) fn remove_stale(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
    };
    let ours = paths.into_iter().filter(is_ours);
    ours.filter(|path| match fs::remove_dir_all(path) {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "the directory of an earlier run stays");
            true
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_is_removed_and_what_stays_is_kept_on_record() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::create_dir_all(path("rollout-1/below")).unwrap();
        fs::create_dir(path("thesis")).unwrap();
        // What cannot be removed: it is no directory.
        fs::write(path("rollout-2"), "").unwrap();
        let left = remove_stale(
            ["rollout-1", "thesis", "rollout-2", "rollout-3"]
                .map(path)
                .to_vec(),
        );
        assert_eq!(left, [path("rollout-2")]);
        assert!(!path("rollout-1").exists() && path("thesis").exists());
    }
}
