//! Puts this program where another container of the pod finds it: an agent's image has none of it.
//!
//! The program appears whole or not at all, whatever was there before, and can be run by any user.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The program's name in the directory.
pub const NAME: &str = "rollout-operator";

/// What everybody may read and run.
const MODE: u32 = 0o755;

/// The program cannot be put there.
#[derive(Debug, thiserror::Error)]
#[error("cannot install {} as {}", program.display(), target.display())]
pub struct InstallError {
    /// What was to be installed.
    program: PathBuf,
    /// Where.
    target: PathBuf,
    /// Why not.
    #[source]
    source: io::Error,
}

/// Copies `program` to `rollout-operator` in `directory`. Answers its path.
///
/// # Errors
/// The program cannot be read, or the directory cannot be written. Then nothing is left there.
pub fn install(program: &Path, directory: &Path) -> Result<PathBuf, InstallError> {
    let target = directory.join(NAME);
    let unfinished = directory.join(format!(".{NAME}-{:032x}", rand::random::<u128>()));
    let copied = copy(program, &unfinished).and_then(|()| fs::rename(&unfinished, &target));
    match copied {
        Ok(()) => Ok(target),
        Err(source) => {
            let _ = fs::remove_file(&unfinished);
            Err(InstallError {
                program: program.to_owned(),
                target,
                source,
            })
        }
    }
}

fn copy(program: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(program)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(to)?;
    io::copy(&mut from, &mut file)?;
    // The mode of a new file is subject to the umask.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn the_program_is_there_for_everybody_whatever_was_there_before() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let shared = directory.path().join("shared");
        fs::create_dir(&shared).unwrap();
        for text in ["first", "second, and longer"] {
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o600)).unwrap();
            let installed = install(&program, &shared).unwrap();
            assert_eq!(installed, shared.join("rollout-operator"));
            assert_eq!(fs::read_to_string(&installed).unwrap(), text);
            let mode = fs::metadata(&installed).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o755);
            assert_eq!(names(&shared), ["rollout-operator"]);
        }
    }

    #[test]
    fn what_cannot_be_installed_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let error = install(Path::new("/proc/self/exe"), &missing).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot install /proc/self/exe as {}/rollout-operator",
                missing.display()
            )
        );
        assert!(error.source().is_some());
        // A directory in its place cannot be replaced; the copy goes again.
        fs::create_dir_all(directory.path().join("rollout-operator/full")).unwrap();
        install(Path::new("/proc/self/exe"), directory.path()).unwrap_err();
        assert_eq!(names(directory.path()), ["rollout-operator"]);
    }
}
