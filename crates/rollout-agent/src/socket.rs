//! Unix sockets in directories, however long the directory's path is.
//!
//! A unix socket's path has at most 107 bytes. Going through `/proc/self/fd/<directory>` keeps it short for any directory.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixStream};

const NAME: &str = "launcher.sock";

fn short(directory: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name)
}

/// Listens on `launcher.sock`; a socket that an earlier launcher left is replaced.
pub(crate) fn listen(directory: &Path) -> io::Result<UnixListener> {
    let directory = File::open(directory)?;
    let path = short(&directory, NAME.as_ref());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(&path),
    }
}

/// Connects to the launcher that listens.
pub(crate) async fn connect(directory: &Path) -> io::Result<UnixStream> {
    connect_to(&directory.join(NAME)).await
}

/// Connects to a socket by its path.
pub(crate) async fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let directory = File::open(parent)?;
    UnixStream::connect(short(&directory, name)).await
}
