//! `launcher.sock` in a directory, however long the directory's path is.
//!
//! A unix socket's path has at most 107 bytes. Going through `/proc/self/fd/<directory>` keeps it short for any directory.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixStream};

const NAME: &str = "launcher.sock";

fn short(directory: &File) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(NAME)
}

/// Listens; a socket that an earlier launcher left is replaced.
pub(crate) fn listen(directory: &Path) -> io::Result<UnixListener> {
    let directory = File::open(directory)?;
    let path = short(&directory);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => UnixListener::bind(&path),
    }
}

/// Connects to the launcher that listens.
pub(crate) async fn connect(directory: &Path) -> io::Result<UnixStream> {
    let directory = File::open(directory)?;
    UnixStream::connect(short(&directory)).await
}
