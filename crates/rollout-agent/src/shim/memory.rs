//! Processes of this container that the kernel killed because its memory limit was used up.
//!
//! The kernel counts them per control group, and a container sees its own. A process that died of it looks like any other that was
//! killed, and one whose child died of it like any other that failed. Caveats: where the whole container is killed at once (version 2 of
//! control groups, as kubelets set it up), nobody is left to count, and the kubelet alone knows; outside of a container the count is that
//! of the whole machine, or there is none.

use std::path::PathBuf;

/// Files with the count, of version 2 and of version 1 of control groups.
const FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];

/// The counter of this container.
#[derive(Debug, Clone)]
pub(super) struct OutOfMemory {
    files: Vec<PathBuf>,
}

impl Default for OutOfMemory {
    fn default() -> Self {
        Self {
            files: FILES.map(PathBuf::from).to_vec(),
        }
    }
}

impl OutOfMemory {
    /// Processes that have been killed so far; 0 where nobody counts them.
    pub(super) fn kills(&self) -> u64 {
        let mut texts = self.files.iter().flat_map(std::fs::read_to_string);
        texts.find_map(|text| killed(&text)).unwrap_or(0)
    }
}

fn killed(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        for (text, expected) in [
            (
                "low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 1\n",
                Some(3),
            ),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", Some(7)),
            ("oom_kill_disable 0\nunder_oom 0\n", None),
            ("oom_kill many\n", None),
            ("", None),
        ] {
            assert_eq!(killed(text), expected, "{text}");
        }
    }

    #[test]
    fn without_a_counter_nothing_was_killed() {
        let directory = tempfile::tempdir().unwrap();
        let counter = OutOfMemory {
            files: vec![directory.path().join("none"), directory.path().join("v1")],
        };
        assert_eq!(counter.kills(), 0);
        std::fs::write(directory.path().join("v1"), "oom_kill 2\n").unwrap();
        assert_eq!(counter.kills(), 2);
    }
}
