//! The interpreter of agents and plug-ins: asked for its version before anything is started with it.

use std::{
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rollout_agent::shim::clean_environment;
use tokio::{process::Command, time::timeout};

/// What `python3` is called when nobody names one.
const DEFAULT: &str = "python3";

/// The oldest version that the host runs on.
const OLDEST: (u32, u32) = (3, 9);

/// How long the interpreter may take to say its version: a cold start from a network file system included.
const PATIENCE: Duration = Duration::from_secs(20);

/// Understood by every Python. The program comes last: its path may have spaces, and it may be empty.
const ASK: &str =
    "import sys; print('%d.%d %s' % (sys.version_info[:2] + (sys.executable or '',)))";

/// What to do about all of it.
const REMEDY: &str = "name a Python 3.9 or later with --python PATH";

/// A reason why an interpreter cannot run agents and plug-ins.
#[derive(Debug, thiserror::Error)]
pub(super) enum PythonError {
    #[error("there is no {DEFAULT} on PATH, and the job has Python code to run; {REMEDY}")]
    NoDefault,
    #[error("--python {python}: there is no such program; {REMEDY}", python = .0.display())]
    Missing(PathBuf),
    #[error("--python {python}: it is a directory; {REMEDY}, for example {example}", python = .0.display(), example = .0.join("bin/python").display())]
    Directory(PathBuf),
    #[error("--python {python}: it is not executable; {REMEDY}, or make it executable", python = .0.display())]
    NotExecutable(PathBuf),
    #[error("--python {python}: it cannot be started; {REMEDY}", python = .0.display())]
    Start(PathBuf, #[source] io::Error),
    #[error("--python {python}: it did not say its version within {} s; {REMEDY}", PATIENCE.as_secs(), python = .0.display())]
    Silent(PathBuf),
    #[error("--python {python}: it is no Python ({said}); {REMEDY}", said = .1, python = .0.display())]
    NoPython(PathBuf, String),
    #[error("--python {python}: it is Python {}.{}, agents and plug-ins need 3.9 or later; {REMEDY}", version.0, version.1, python = python.display())]
    TooOld {
        python: PathBuf,
        version: (u32, u32),
    },
}

/// The interpreter to use, once it has said that it is new enough. `None`: nobody named one, and nothing needs one.
///
/// A path is taken as it is: it may be a script that sets things up. Of a bare name it is the program that answered: what a launcher such as pyenv's
/// starts depends on where it is asked, and agents and plug-ins work elsewhere. The python of a virtual environment answers by its own path.
pub(super) async fn choose(
    given: Option<&Path>,
    is_needed: bool,
) -> Result<Option<PathBuf>, PythonError> {
    match given {
        None if !is_needed => Ok(None),
        None => match check(Path::new(DEFAULT)).await {
            Err(PythonError::Missing(_)) => Err(PythonError::NoDefault),
            answered => answered.map(Some),
        },
        Some(path) if path.components().count() > 1 => {
            // Children run elsewhere.
            let python = std::path::absolute(path)
                .map_err(|error| PythonError::Start(path.to_owned(), error))?;
            check(&python).await?;
            Ok(Some(python))
        }
        Some(name) => check(name).await.map(Some),
    }
}

async fn check(python: &Path) -> Result<PathBuf, PythonError> {
    if python.is_dir() {
        return Err(PythonError::Directory(python.to_owned()));
    }
    let asked = Command::new(python)
        .args(["-c", ASK])
        .env_clear()
        .envs(clean_environment(std::env::vars_os(), false, &[]))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, asked)
        .await
        .map_err(|_| PythonError::Silent(python.to_owned()))?
        .map_err(|error| not_started(python, error))?;
    judge(
        python,
        &String::from_utf8_lossy(&output.stdout),
        &String::from_utf8_lossy(&output.stderr),
        output.status,
    )
}

/// The program of an answer whose version is new enough.
fn judge(
    python: &Path,
    said: &str,
    talk: &str,
    status: ExitStatus,
) -> Result<PathBuf, PythonError> {
    let python = python.to_owned();
    let Some((version, program)) = answer(said) else {
        let last = [said, talk]
            .iter()
            .find_map(|text| text.trim().lines().last());
        let what = match last {
            Some(line) => {
                let start: String = line.chars().take(200).collect();
                format!("it said '{start}'")
            }
            None => format!("it ended with {status}"),
        };
        return Err(PythonError::NoPython(python, what));
    };
    if version < OLDEST {
        return Err(PythonError::TooOld { python, version });
    }
    // One that does not know its own path, or whose path is no UTF-8, is started as it was named.
    Ok(Some(Path::new(program))
        .filter(|program| program.is_absolute() && !program.to_string_lossy().contains('\u{fffd}'))
        .map_or(python, Path::to_owned))
}

fn not_started(python: &Path, error: io::Error) -> PythonError {
    let path = python.to_owned();
    match error.kind() {
        // A script whose own interpreter is gone is there all the same.
        io::ErrorKind::NotFound if !python.exists() => PythonError::Missing(path),
        io::ErrorKind::PermissionDenied => PythonError::NotExecutable(path),
        _ => PythonError::Start(path, error),
    }
}

/// The version and the program in the last line: what the site's own start-up files print comes first.
fn answer(said: &str) -> Option<((u32, u32), &str)> {
    let line = said.trim().lines().last()?;
    let (version, program) = line.split_once(' ').unwrap_or((line, ""));
    let (major, minor) = version.split_once('.')?;
    Some(((major.parse().ok()?, minor.parse().ok()?), program))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn said(output: &str, talk: &str) -> String {
        let judged = judge(Path::new("P"), output, talk, ExitStatus::default());
        judged.map_or_else(
            |error| error.to_string(),
            |program| format!("taken: {}", program.display()),
        )
    }

    #[test]
    fn a_version_that_is_new_enough_is_taken() {
        assert_eq!(said("3.9\n", ""), "taken: P");
        assert_eq!(said("3.9 \n", ""), "taken: P");
        assert_eq!(said("3.9 /a\u{fffd}/python\n", ""), "taken: P");
        assert_eq!(
            said(
                "sitecustomize: hello\n3.14 /my venv/bin/python\n",
                "a warning"
            ),
            "taken: /my venv/bin/python"
        );
    }

    /// As pyenv does: which one it is depends on the directory.
    #[tokio::test]
    async fn of_a_launcher_the_program_that_answers_is_taken_unless_it_was_named_by_its_path() {
        let home = tempfile::tempdir().unwrap();
        let (launcher, real) = (home.path().join("python"), home.path().join("real"));
        let script = |path: &Path, text: String| {
            fs::write(path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        script(
            &launcher,
            format!("#!/bin/sh\nexec {} \"$@\"\n", real.display()),
        );
        script(&real, "#!/bin/sh\necho \"3.12 $0\"\n".to_owned());
        assert_eq!(check(&launcher).await.unwrap(), real);
        let chosen = choose(Some(&launcher), true).await.unwrap().unwrap();
        assert_eq!(chosen, launcher);
    }

    #[test]
    fn what_cannot_run_agents_is_refused_with_what_to_do() {
        let todo = "name a Python 3.9 or later with --python PATH";
        assert_eq!(
            said("3.8\n", ""),
            format!("--python P: it is Python 3.8, agents and plug-ins need 3.9 or later; {todo}")
        );
        assert_eq!(
            said("", "P: import: not found\n"),
            format!("--python P: it is no Python (it said 'P: import: not found'); {todo}")
        );
        assert_eq!(
            said("", ""),
            format!("--python P: it is no Python (it ended with exit status: 0); {todo}")
        );
    }
}
