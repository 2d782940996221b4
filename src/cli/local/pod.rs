//! One agent pod: a launcher and a shim as child processes, from their start to the word to the router that they are gone.

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::{
    control::Control,
    environment::Environment,
    inputs::Place,
    secrets::Secrets,
    service::{Process, Spec},
    workplace,
};

/// How long a launcher may take to end after its shim, and the other way round.
const GRACE: Duration = Duration::from_secs(15);

/// What all pods of a job share.
#[derive(Debug, Clone)]
pub(super) struct Pods {
    /// This program.
    pub(super) program: PathBuf,
    /// Name of the job.
    pub(super) job: String,
    /// Most pods at once.
    pub(super) slots: u32,
    /// Sessions that one pod runs at once.
    pub(super) concurrent: u32,
    /// Sessions that one pod runs in all; 0: no limit.
    pub(super) sessions_per_pod: u32,
    /// Directory under which each pod has its own.
    pub(super) directory: PathBuf,
    /// Directory of the logs.
    pub(super) logs: PathBuf,
    /// What the shim runs: its arguments after `agent exec --directory DIR`.
    pub(super) agent: Vec<String>,
    /// The agent's variables.
    pub(super) environment: Environment,
    pub(super) place: Place,
    /// Directory under which each pod without a `workingDir` has one to work in.
    pub(super) workplaces: PathBuf,
    /// What is loaded before a session can start, for messages; a command needs no loading.
    pub(super) loads: Option<String>,
    /// Secrets of this run.
    pub(super) secrets: Secrets,
}

impl Pods {
    /// Where the output of a slot's pods goes.
    pub(super) fn log(&self, slot: u32) -> PathBuf {
        self.logs.join(format!("agent-{slot}.log"))
    }
}

/// One pod of a slot.
#[derive(Debug)]
pub(super) struct Pod<'a> {
    pub(super) pods: &'a Pods,
    /// The router's agents' port.
    pub(super) router: &'a str,
    pub(super) control: &'a Control,
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// The run is over.
    pub(super) cancel: &'a CancellationToken,
}

impl Pod<'_> {
    /// Runs it until one of its processes ends, or the run is over.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let directory = self.directory();
        tokio::fs::create_dir_all(&directory)
            .await
            .with_context(|| format!("make {}", directory.display()))?;
        let workplace = self.workplace();
        if let Some(workplace) = &workplace {
            workplace::make(workplace)
                .await
                .with_context(|| format!("make {} empty", workplace.display()))?;
        }
        let ended = self.processes().await;
        let removed = tokio::fs::remove_dir_all(&directory)
            .await
            .with_context(|| format!("remove {}", directory.display()));
        if let Some(workplace) = &workplace
            && let Err(error) = workplace::remove(workplace).await
        {
            // An agent may have made it unwritable; the end of the run tries again.
            tracing::debug!(directory = %workplace.display(), %error, "what an agent wrote stays for now");
        }
        ended.and(removed)
    }

    /// Starts both processes, waits for the end of one, and ends the other.
    async fn processes(&self) -> anyhow::Result<()> {
        let mut launcher = Process::start(&self.launcher()).await?;
        let mut shim = match Process::start(&self.shim()).await {
            Ok(shim) => shim,
            Err(error) => {
                launcher.stop(GRACE).await;
                self.tell(&error.to_string()).await?;
                return Err(error.into());
            }
        };
        let reason = tokio::select! {
            () = self.cancel.cancelled() => String::new(),
            status = launcher.wait() => ended("launcher", status?),
            status = shim.wait() => ended("shim", status?),
        };
        launcher.terminate();
        let told = async {
            // A launcher that lives reports its sessions first.
            launcher.stop(GRACE).await;
            self.tell(&reason).await
        };
        tokio::join!(told, shim.stop(GRACE)).0
    }

    /// Tells the router that the pod is gone. At the end of a run nobody needs to know: the driver has decided.
    async fn tell(&self, reason: &str) -> anyhow::Result<()> {
        if self.cancel.is_cancelled() {
            return Ok(());
        }
        self.control
            .pod_ended(self.slot, self.generation, reason)
            .await
            .with_context(|| format!("{reason}; its sessions end when they miss their heartbeats"))
    }

    fn name(&self) -> String {
        format!("agent-{}-{}", self.slot, self.generation)
    }

    fn directory(&self) -> PathBuf {
        self.pods.directory.join(self.name())
    }

    /// Its own directory to work in, unless the manifest names one.
    fn workplace(&self) -> Option<PathBuf> {
        match self.pods.place {
            Place::Given(_) => None,
            Place::Own { .. } => Some(self.pods.workplaces.join(self.name())),
        }
    }

    fn launcher(&self) -> Spec {
        let pods = self.pods;
        let concurrent = pods.concurrent.to_string();
        let sessions_per_pod = pods.sessions_per_pod.to_string();
        let directory = self.directory().display().to_string();
        let args = [
            "agent",
            "launch",
            "--exit-with-stdin",
            "--claim-token-stdin",
            "--router",
            self.router,
            "--directory",
            &directory,
            "--concurrent",
            &concurrent,
            "--sessions-per-pod",
            &sessions_per_pod,
        ];
        let claim_token = pods
            .secrets
            .claim_token(&pods.job, self.slot, self.generation);
        Spec {
            name: format!("{} launcher", self.name()),
            program: pods.program.clone(),
            args: args.map(str::to_owned).to_vec(),
            first_line: Some(claim_token),
            environment: None,
            directory: None,
            log: pods.log(self.slot),
            announces: false,
        }
    }

    fn shim(&self) -> Spec {
        let directory = self.directory().display().to_string();
        let args = [
            "agent",
            "exec",
            "--exit-with-stdin",
            // It has the user's and no more; values are in no argument, which everybody can see.
            "--inherit-environment",
            "--directory",
            &directory,
        ];
        let mut args = args.map(str::to_owned).to_vec();
        args.extend(self.pods.agent.iter().cloned());
        Spec {
            name: format!("{} shim", self.name()),
            program: self.pods.program.clone(),
            args,
            first_line: None,
            environment: Some(self.pods.environment.clone()),
            directory: match &self.pods.place {
                Place::Given(directory) => Some(directory.clone()),
                Place::Own { .. } => self.workplace(),
            },
            log: self.pods.log(self.slot),
            announces: false,
        }
    }
}

fn ended(part: &str, status: ExitStatus) -> String {
    format!("the pod's {part} ended with {status}")
}
