//! Unix sockets in directories, however long the directory's path is.
//!
//! A unix socket's path has at most 107 bytes. Going through `/proc/self/fd/<directory>` keeps it short for any directory.

use std::{
    ffi::OsStr,
    fs::{File, Permissions},
    io,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixStream};

const NAME: &str = "launcher.sock";

fn short(directory: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name)
}

/// Who may connect: whoever may enter the directory. The agent's container may have another user than the launcher's.
const MODE: u32 = 0o666;

/// Listens on `launcher.sock`; a socket that an earlier launcher left is replaced.
pub(crate) fn listen(directory: &Path) -> io::Result<UnixListener> {
    let directory = File::open(directory)?;
    let path = short(&directory, NAME.as_ref());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => {
            let listener = UnixListener::bind(&path)?;
            std::fs::set_permissions(&path, Permissions::from_mode(MODE))?;
            Ok(listener)
        }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{NAME, connect, listen};

    #[tokio::test]
    async fn a_shim_of_another_user_can_connect() {
        let directory = tempfile::tempdir().unwrap();
        let listener = listen(directory.path()).unwrap();
        let mode = directory.path().join(NAME).metadata().unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o666);
        let (_, accepted) = tokio::join!(connect(directory.path()), listener.accept());
        accepted.unwrap();
    }
}
