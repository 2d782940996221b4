//! The Python host as files inside this program.

use std::{fs, io, path::Path, path::PathBuf};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../python/", $name)))),*]
    };
}

/// Name and text of every file; the first one is the entry.
const FILES: &[(&str, &str)] = files![
    "host.py",
    "rollout_host/__init__.py",
    "rollout_host/agents.py",
    "rollout_host/calls.py",
    "rollout_host/channel.py",
    "rollout_host/errors.py",
    "rollout_host/http_client.py",
    "rollout_host/output.py",
    "rollout_host/plugins.py",
    "rollout_host/stand_ins.py",
    "rollout_host/miles/base_types.py",
    "rollout_host/miles/filter_types.py",
    "rollout_host/miles/http_utils.py",
    "rollout_host/miles/types.py",
];

/// Writes the host's files into a directory and answers the path of its entry, `host.py`.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn install(directory: &Path) -> io::Result<PathBuf> {
    for (name, text) in FILES {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(directory.join("host.py"))
}
