//! Where the user's processes work, and what their relative paths mean there. Pure but for the two functions that make and remove a directory.
//!
//! A process without a `workingDir` works in a directory of its own below `.rollout`, empty at its start as a container's is, and removed at its end: what it
//! writes by a relative path is not left in the directory where `local` was started. What a person's own words name by a relative path (an entry of PATH or
//! PYTHONPATH, `./program`) is meant from that directory all the same, and is made absolute.
//!
//! Caveats: what a process opens by a relative path, or gets in an argument, is not touched: it is in its own directory, or `workingDir` says where.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

use tokio::fs;

/// Below `.rollout`: where agents work, one directory for each pod.
pub(super) const AGENTS: &str = "agents";

/// Below `.rollout`: where the plug-in host works.
pub(super) const PLUGINS: &str = "plugins";

/// Variables that are a list of directories or programs' places, with colons.
const LISTS: [&str; 3] = ["PATH", "PYTHONPATH", "PYTHONHOME"];

/// Variables that are one path.
const PATHS: [&str; 1] = ["TMPDIR"];

/// A variable's value as it is meant by somebody in the directory `start`.
pub(super) fn variable(name: &OsStr, value: OsString, start: &Path) -> OsString {
    // An empty variable is as one that is not set.
    if value.is_empty() {
        return value;
    }
    if PATHS.iter().any(|known| name == *known) {
        return start.join(value).into_os_string();
    }
    if !LISTS.iter().any(|known| name == *known) {
        return value;
    }
    // An empty entry is the current directory.
    let entries = std::env::split_paths(&value).map(|entry| from(start, &entry));
    // What has a colon in it cannot be an entry: a relative one that is not made absolute is the lesser evil.
    std::env::join_paths(entries).unwrap_or(value)
}

/// A command's program as it is meant by somebody in the directory `start`: a bare name is looked up on PATH.
pub(super) fn program(word: String, start: &Path) -> String {
    let path = Path::new(&word);
    if path.is_absolute() || !word.contains('/') {
        return word;
    }
    from(start, path).to_string_lossy().into_owned()
}

/// The words of a command's arguments that are files in the directory `start` by a relative path: its process, which works elsewhere, does not find them.
pub(super) fn left_behind<'a>(words: &'a [String], start: &Path) -> Vec<&'a str> {
    let relative = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.is_empty() && Path::new(word).is_relative());
    relative.filter(|word| start.join(word).is_file()).collect()
}

/// `start/path`, without the dots that mean here.
fn from(start: &Path, path: &Path) -> PathBuf {
    start.join(path).components().collect()
}

/// An empty directory, whatever an earlier run left there.
pub(super) async fn make(directory: &Path) -> io::Result<()> {
    remove(directory).await?;
    fs::create_dir_all(directory).await
}

/// Removes a directory and all that is in it, if it is there.
pub(super) async fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs, path::Path};

    use super::{left_behind, make, program, remove, variable};

    fn meant(name: &str, value: &str) -> String {
        let meant = variable(name.as_ref(), value.into(), Path::new("/home/me/checkout"));
        meant.into_string().unwrap()
    }

    #[test]
    fn what_a_person_names_by_a_relative_path_is_where_that_person_is() {
        for (name, value, expected) in [
            ("PYTHONPATH", ".", "/home/me/checkout"),
            (
                "PYTHONPATH",
                "src:/opt/lib",
                "/home/me/checkout/src:/opt/lib",
            ),
            (
                "PYTHONPATH",
                "./src:",
                "/home/me/checkout/src:/home/me/checkout",
            ),
            ("PATH", "/bin:../bin", "/bin:/home/me/checkout/../bin"),
            ("TMPDIR", "tmp", "/home/me/checkout/tmp"),
            ("TMPDIR", "/tmp", "/tmp"),
            ("PYTHONPATH", "", ""),
            ("PYTHONHASHSEED", "0", "0"),
            ("DATA", "data", "data"),
        ] {
            assert_eq!(meant(name, value), expected, "{name}={value}");
        }
        let odd = variable(OsStr::new("PATH"), "bin".into(), Path::new("/home/a:b"));
        assert_eq!(odd, "bin");
    }

    #[test]
    fn a_program_is_looked_up_on_path_unless_it_is_a_path() {
        let meant = |word: &str| program(word.to_owned(), Path::new("/home/me"));
        assert_eq!(meant("./agent"), "/home/me/agent");
        assert_eq!(meant("bin/agent"), "/home/me/bin/agent");
        assert_eq!(meant("/bin/agent"), "/bin/agent");
        assert_eq!(meant("agent"), "agent");
    }

    #[test]
    fn arguments_that_are_files_here_are_known() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("agent.py"), "").unwrap();
        fs::create_dir(home.path().join("run")).unwrap();
        let words = ["--once", "agent.py", "run", "", "/etc/passwd", "none.py"].map(str::to_owned);
        assert_eq!(left_behind(&words, home.path()), ["agent.py"]);
    }

    #[tokio::test]
    async fn a_directory_is_empty_at_its_start() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("agents/agent-0-1");
        remove(&directory).await.unwrap();
        make(&directory).await.unwrap();
        fs::write(directory.join("left"), "").unwrap();
        make(&directory).await.unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        remove(&directory).await.unwrap();
        assert!(!directory.exists());
    }
}
