//! `rollout-operator controller`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::controllers::manager::{self, Election, Settings};
use crate::controllers::runtime::election::Timing;
use crate::controllers::runtime::watching::Scope;
use crate::resources::Rendering;
use crate::resources::secrets::OperatorKey;

/// Shortest key that tokens may be derived from.
const SHORTEST_KEY: usize = 32;

/// Runs the controller of pools and jobs in a cluster.
///
/// It finds the API server by the service account of its pod, or by KUBECONFIG.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Image of the operator, which routers, drivers, launchers and simulated engines run.
    #[arg(long, value_name = "IMAGE", env = "ROLLOUT_OPERATOR_IMAGE")]
    image: String,

    /// Secret to pull that image with, in the namespace of each pod. Can be given several times.
    #[arg(long = "image-pull-secret", value_name = "NAME")]
    image_pull_secrets: Vec<String>,

    /// Namespace to look in; can be given several times [default: all of them].
    #[arg(long = "namespace", value_name = "NAMESPACE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    namespaces: Vec<String>,

    /// File with the operator's own key, of at least 32 bytes: tokens of jobs and routers are derived from it.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// Act only while holding a lease, so that there can be several controllers.
    #[arg(long)]
    leader_elect: bool,

    /// Name of the lease.
    #[arg(long, value_name = "NAME", default_value = "rollout-operator")]
    lease_name: String,

    /// Namespace of the lease: the controller's own.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    lease_namespace: Option<String>,

    /// Seconds after which a silent leader is replaced.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=600))]
    lease_seconds: u32,

    /// Name of the controller's pod, in events and in the lease.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pod_name: Option<String>,

    /// Address of /healthz, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Objects of one kind that are looked at at once: more than the API server has time for only make each look take longer.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,

    /// Domain of the cluster's DNS.
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,

    /// Address of the cluster's DNS that agents may ask, besides the pods in kube-system that are labelled k8s-app=kube-dns and the
    /// resolvers of this pod. Can be given several times.
    #[arg(long = "dns-address", value_name = "ADDRESS/BITS", value_parser = super::resolvers::range)]
    dns_addresses: Vec<String>,

    /// Version of what it makes: by it a test lets the next version take over.
    #[arg(long, value_name = "VERSION", hide = true, default_value = env!("CARGO_PKG_VERSION"))]
    called_version: String,
}

impl Args {
    fn settings(self) -> anyhow::Result<Settings> {
        let key = read_key(&self.key_file)?;
        let election = if self.leader_elect {
            Some(Election {
                namespace: self.lease_namespace.clone().context(
                    "--leader-elect needs the namespace of the lease: --lease-namespace, or POD_NAMESPACE",
                )?,
                lease: self.lease_name,
                identity: identity(self.pod_name.as_deref()),
                timing: Timing::of_lease(self.lease_seconds),
            })
        } else {
            None
        };
        Ok(Settings {
            scope: if self.namespaces.is_empty() {
                Scope::Cluster
            } else {
                Scope::Namespaces(self.namespaces)
            },
            rendering: Rendering {
                image: self.image,
                image_pull_secrets: self.image_pull_secrets,
                version: self.called_version,
                operator_namespace: self.lease_namespace,
                cluster_domain: self.cluster_domain,
                dns_addresses: super::resolvers::ranges(self.dns_addresses),
            },
            key,
            election,
            instance: self.pod_name,
            concurrency: self.concurrency,
        })
    }
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let address = args.listen;
    let settings = args.settings()?;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    super::data::line(serde_json::json!({"url": format!("http://{}", listener.local_addr()?)}))?;
    let stop = CancellationToken::new();
    // One watcher of signals for the whole process (P21).
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let ended = manager::run(settings, listener, stop.clone());
    tokio::pin!(ended);
    let outcome = tokio::select! {
        outcome = &mut ended => outcome,
        _ = terminate.recv() => { stop.cancel(); ended.await }
        _ = tokio::signal::ctrl_c() => { stop.cancel(); ended.await }
    };
    outcome?;
    Ok(ExitCode::SUCCESS)
}

fn read_key(file: &Path) -> anyhow::Result<OperatorKey> {
    let key = std::fs::read(file)
        .with_context(|| format!("cannot read the key in {}", file.display()))?;
    anyhow::ensure!(
        key.len() >= SHORTEST_KEY,
        "the key in {} has {} bytes: {SHORTEST_KEY} random ones are needed (head -c {SHORTEST_KEY} /dev/urandom)",
        file.display(),
        key.len()
    );
    Ok(OperatorKey::new(key))
}

/// Who a process is in an election: another one than every process before it in the same pod.
fn identity(pod: Option<&str>) -> String {
    let pod = pod.unwrap_or("controller");
    format!("{pod}_{:016x}", rand::random::<u64>())
}
