//! Ends every process that a session or a host leaves behind, and no other.
//!
//! The shim is the subreaper of what it starts, so every process of a session stays below the shim, however it detaches. Only
//! processes below the shim are ever ended. Which of them belong to a session: its process group and session (`setsid` leaves both),
//! those whose environment carries its mark, and their children. A process that is none of these, because it detached and cleaned its
//! environment, is ended as soon as nothing else runs in this shim.

use std::{
    collections::HashSet,
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, kill, killpg},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

use super::environment::MARK;

/// How long the processes of a session may take to die.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

const KILL_PAUSE: Duration = Duration::from_millis(5);

/// One process, as `/proc/<pid>/stat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    zombie: bool,
}

/// Makes this process the one that orphans of the user's code fall to, and hides it from them.
///
/// # Errors
/// When the kernel refuses.
pub fn guard_this_process() -> io::Result<()> {
    prctl::set_child_subreaper(true)?;
    hide_this_process()
}

/// Hides this process's memory, environment and descriptors from other processes of its user.
///
/// # Errors
/// When the kernel refuses.
pub fn hide_this_process() -> io::Result<()> {
    Ok(prctl::set_dumpable(false)?)
}

/// The processes that this shim started.
#[derive(Debug)]
pub(crate) struct Processes {
    leaders: Mutex<HashSet<i32>>,
    /// Where this process works since before the user's code ran; none: that cannot be told.
    workplace: Option<PathBuf>,
}

/// A directory that is gone stays gone for who works in it, also when there is another at its place: then the command has to go there itself.
fn enter(workplace: &Path, command: &mut Command) -> io::Result<()> {
    if env::current_dir().is_ok() {
        return Ok(());
    }
    fs::create_dir_all(workplace).map_err(|error| {
        let directory = workplace.display();
        let what =
            format!("the working directory {directory} is gone and cannot be made again: {error}");
        io::Error::new(error.kind(), what)
    })?;
    command.current_dir(workplace);
    Ok(())
}

/// What is ended.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    /// The process that led it.
    pub(super) leader: i32,
    /// Its mark.
    pub(super) mark: String,
    /// Processes that stay, the leader included: those that a host had before its first session.
    pub(super) keep: HashSet<i32>,
}

impl Ending {
    /// Everything below this process, when it has started nothing but `leader`.
    pub(crate) fn everything(leader: i32) -> Self {
        Self {
            leader,
            mark: String::new(),
            keep: HashSet::new(),
        }
    }
}

impl Processes {
    /// None yet. What is started works where this process does now.
    pub(crate) fn here() -> Self {
        Self {
            leaders: Mutex::default(),
            workplace: env::current_dir().ok(),
        }
    }

    /// Starts a process that leads a group of its own. Where it works is made again when the user's code removed it.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(Child, i32)> {
        if let Some(workplace) = &self.workplace {
            enter(workplace, command)?;
        }
        let mut leaders = self.leaders.lock();
        let child = command.process_group(0).spawn()?;
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .unwrap_or(0);
        leaders.insert(pid);
        Ok((child, pid))
    }

    /// Forgets a leader that has been waited for.
    pub(crate) fn release(&self, leader: i32) {
        self.leaders.lock().remove(&leader);
    }

    /// Kills until nothing is left; answers whether that was reached.
    pub(crate) async fn end(&self, ending: &Ending) -> bool {
        let until = Instant::now() + KILL_TIMEOUT;
        loop {
            if self.kill_once(ending) == 0 {
                return true;
            }
            if Instant::now() >= until {
                tracing::warn!(
                    leader = ending.leader,
                    "processes of a session cannot be ended"
                );
                return false;
            }
            sleep(KILL_PAUSE).await;
        }
    }

    /// The processes below one.
    pub(super) fn below(pid: i32) -> HashSet<i32> {
        descendants(&snapshot(), pid)
    }

    fn kill_once(&self, ending: &Ending) -> usize {
        let leaders = self.leaders.lock();
        let own = Pid::this().as_raw();
        let others: HashSet<i32> = leaders
            .iter()
            .copied()
            .filter(|pid| *pid != ending.leader)
            .collect();
        let alone = others.is_empty() && ending.keep.is_empty();
        if own == 1 && alone {
            // In a container of our own: in one step, so that nothing can fork its way out.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
        let processes = snapshot();
        for orphan in processes
            .iter()
            .filter(|process| process.zombie && process.parent == own)
        {
            if !leaders.contains(&orphan.pid) {
                let _ = waitpid(Pid::from_raw(orphan.pid), Some(WaitPidFlag::WNOHANG));
            }
        }
        let victims = victims(&processes, own, ending, &others, |pid| {
            has_mark(pid, &ending.mark)
        });
        for pid in &victims {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        victims.len()
    }
}

/// Signals a process group; a group that is gone is fine.
pub(super) fn signal_group(leader: i32, signal: Signal) {
    match killpg(Pid::from_raw(leader), signal) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(leader, %error, "a process group cannot be signalled"),
    }
}

/// Who is to be killed: pure but for the marks.
fn victims(
    processes: &[Process],
    own: i32,
    ending: &Ending,
    others: &HashSet<i32>,
    has_mark: impl Fn(i32) -> bool,
) -> Vec<i32> {
    let below_own = descendants(processes, own);
    let mut of_others: HashSet<i32> = others.clone();
    for other in others {
        of_others.extend(descendants(processes, *other));
    }
    let candidates: Vec<&Process> = processes
        .iter()
        .filter(|process| below_own.contains(&process.pid) && !process.zombie)
        .filter(|process| !of_others.contains(&process.pid) && !ending.keep.contains(&process.pid))
        .collect();
    if others.is_empty() {
        return candidates.iter().map(|process| process.pid).collect();
    }
    let roots: HashSet<i32> = candidates
        .iter()
        .filter(|process| {
            process.group == ending.leader
                || process.session == ending.leader
                || has_mark(process.pid)
        })
        .map(|process| process.pid)
        .collect();
    let mut chosen = roots.clone();
    for root in roots {
        chosen.extend(descendants(processes, root));
    }
    candidates
        .iter()
        .map(|process| process.pid)
        .filter(|pid| chosen.contains(pid))
        .collect()
}

fn descendants(processes: &[Process], root: i32) -> HashSet<i32> {
    let mut found = HashSet::new();
    let mut todo = vec![root];
    while let Some(parent) = todo.pop() {
        for process in processes.iter().filter(|process| process.parent == parent) {
            if found.insert(process.pid) {
                todo.push(process.pid);
            }
        }
    }
    found
}

fn snapshot() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// `<pid> (<name>) <state> <parent> <group> <session> ...`; the name may hold anything, parentheses included.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Process {
        pid,
        parent: number()?,
        group: number()?,
        session: number()?,
        zombie: matches!(state, "Z" | "X"),
    })
}

fn has_mark(pid: i32, mark: &str) -> bool {
    let expected = format!("{MARK}={mark}");
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == expected.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32) -> Process {
        Process {
            pid,
            parent,
            group,
            session: group,
            zombie: false,
        }
    }

    fn ending(leader: i32) -> Ending {
        Ending {
            leader,
            mark: "m".to_owned(),
            keep: HashSet::new(),
        }
    }

    /// 1: the system; 10: the shim; 20 and 30: sessions; 21 detached from 20; 22 its child; 40: not ours.
    fn some() -> Vec<Process> {
        vec![
            process(1, 0, 1),
            process(10, 1, 10),
            process(20, 10, 20),
            process(23, 20, 20),
            process(21, 10, 21),
            process(22, 21, 22),
            process(30, 10, 30),
            process(31, 30, 31),
            process(40, 1, 20),
        ]
    }

    #[test]
    fn a_session_ends_with_its_group_and_those_that_carry_its_mark() {
        let mut found = victims(&some(), 10, &ending(20), &HashSet::from([30]), |pid| {
            pid == 21
        });
        found.sort_unstable();
        assert_eq!(found, [20, 21, 22, 23]);
    }

    #[test]
    fn a_stray_of_unknown_origin_stays_while_another_session_runs() {
        let found = victims(&some(), 10, &ending(20), &HashSet::from([30]), |_| false);
        assert_eq!(found, [20, 23]);
    }

    #[test]
    fn everything_below_the_shim_ends_with_the_last_session() {
        let mut found = victims(&some(), 10, &ending(20), &HashSet::new(), |_| false);
        found.sort_unstable();
        assert_eq!(found, [20, 21, 22, 23, 30, 31]);
    }

    #[test]
    fn what_a_host_had_before_its_first_session_stays() {
        let mut idle = ending(20);
        idle.keep = HashSet::from([20, 23, 30, 31]);
        let mut found = victims(&some(), 10, &idle, &HashSet::new(), |_| false);
        found.sort_unstable();
        assert_eq!(found, [21, 22]);
    }

    #[test]
    fn a_name_with_parentheses_is_parsed() {
        let parsed = parse(7, "7 (a) b (c)) S 10 20 30 0 -1").unwrap();
        assert_eq!(
            parsed,
            Process {
                pid: 7,
                parent: 10,
                group: 20,
                session: 30,
                zombie: false
            }
        );
        assert_eq!(parse(7, "7 (short"), None);
    }
}
