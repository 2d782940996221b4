//! Processes of the cluster, which the tests share a process namespace with: found by their command and by their Pod's control group.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    ApiServer,
    Controller,
    Driver,
    Router,
    Launcher,
    Shim,
    Agent,
    Engine,
    EngineSidecar,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::ApiServer,
        Self::Controller,
        Self::Driver,
        Self::Router,
        Self::Launcher,
        Self::Shim,
        Self::Agent,
        Self::Engine,
        Self::EngineSidecar,
    ];

    /// For people.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::Controller => "controller",
            Self::Driver => "driver",
            Self::Router => "router",
            Self::Launcher => "launcher",
            Self::Shim => "shim",
            Self::Agent => "agent",
            Self::Engine => "engine",
            Self::EngineSidecar => "engine sidecar",
        }
    }

    /// The program's file name, and its first arguments. None: it is no process of a Pod.
    fn command(self) -> Option<(&'static str, &'static [&'static str])> {
        Some(match self {
            Self::ApiServer | Self::Controller => return None,
            Self::Driver => ("rollout-operator", &["driver"]),
            Self::Router => ("rollout-operator", &["router"]),
            Self::Launcher => ("rollout-operator", &["agent", "launch"]),
            Self::Shim => ("rollout-operator", &["agent", "exec"]),
            Self::Agent => ("agents", &["turns"]),
            Self::Engine => ("rollout-operator", &["simulate-engine"]),
            Self::EngineSidecar => ("rollout-operator", &["engine-sidecar"]),
        })
    }
}

/// A process and the Pod that it belongs to.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: Pid,
    pub(super) pod: String,
}

/// Processes of a kind in these Pods; of the API server its own.
pub(super) fn of(kind: Kind, pods: &[Pod]) -> Vec<Process> {
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<i32>().ok()
    });
    ids.filter_map(|id| {
        let folder = format!("/proc/{id}");
        let line = std::fs::read(format!("{folder}/cmdline")).ok()?;
        let words: Vec<_> = line
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy)
            .collect();
        let program = Path::new(words.first()?.as_ref()).file_name()?.to_owned();
        let pod = match kind.command() {
            None if kind == Kind::ApiServer && program == "kube-apiserver" => {
                program.to_string_lossy().into_owned()
            }
            None => return None,
            Some((wanted, arguments)) => {
                let fits = program == wanted
                    && words
                        .iter()
                        .skip(1)
                        .zip(arguments)
                        .all(|(word, argument)| word == argument);
                fits.then(|| pod_of(&folder, pods)).flatten()?
            }
        };
        Some(Process {
            id: Pid::from_raw(id),
            pod,
        })
    })
    .collect()
}

/// Processes of a program, in Pods or beside them.
pub(super) fn programs(name: &str) -> Vec<Pid> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let word = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
        (Path::new(&word).file_name()? == name).then(|| Pid::from_raw(id))
    });
    all.collect()
}

/// The Pod's UID is in the path of the control group.
fn pod_of(folder: &str, pods: &[Pod]) -> Option<String> {
    let groups = std::fs::read_to_string(format!("{folder}/cgroup")).ok()?;
    let pod = pods.iter().find(|pod| {
        let uid = pod.metadata.uid.as_ref();
        uid.is_some_and(|uid| groups.contains(&format!("pod{uid}")))
    })?;
    Some(pod.name_any())
}

pub(super) fn kill(id: Pid) -> Result<(), nix::Error> {
    signal::kill(id, Signal::SIGKILL)
}
