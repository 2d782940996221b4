//! `kubectl` and `helm` as a person uses them, and a cluster without the operator.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::Instant;

/// Longest run of one command; waits within commands are shorter.
const PATIENCE: Duration = Duration::from_mins(3);

pub(super) const NAMESPACE: &str = "rollout-system";
pub(super) const RELEASE: &str = "rollout-operator";

/// What Helm keeps of its own.
static HELM_HOME: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// A file of the repository.
pub(super) fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    path.into_os_string().into_string().unwrap()
}

pub(super) fn chart() -> String {
    file("charts/rollout-operator")
}

pub(super) fn install_manifest() -> String {
    file("manifests/install.yaml")
}

fn from_run(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run ./test cluster"))
        .into()
}

/// The definition of `ServiceMonitor`.
pub(super) fn monitoring() -> String {
    let path = from_run("ROLLOUT_TEST_MONITORING");
    path.into_os_string().into_string().unwrap()
}

async fn run(mut command: Command, input: &str) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let whole = async {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let write = async {
            // A command that has failed reads no more.
            let _ = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        output.unwrap()
    };
    tokio::time::timeout(PATIENCE, whole)
        .await
        .unwrap_or_else(|_| panic!("no end within {PATIENCE:?}: {command:?}"))
}

fn program(name: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments);
    command
}

/// What the command printed; it must succeed.
fn succeeded(arguments: &[&str], output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A script of the repository, which must succeed.
pub(super) async fn run_script(path: &str, arguments: &[&str]) {
    let output = run(program(file(path), arguments), "").await;
    succeeded(&[&[path], arguments].concat(), &output);
}

pub(super) async fn kubectl(arguments: &[&str]) -> String {
    kubectl_with(arguments, "").await
}

/// With text on standard input.
pub(super) async fn kubectl_with(arguments: &[&str], input: &str) -> String {
    let output = run(program("kubectl", arguments), input).await;
    succeeded(arguments, &output)
}

/// Whether it succeeded.
pub(super) async fn kubectl_can(arguments: &[&str]) -> bool {
    run(program("kubectl", arguments), "")
        .await
        .status
        .success()
}

/// An object, or a list, as the API server has it.
pub(super) async fn object(arguments: &[&str]) -> Value {
    let text = kubectl(&[&["get", "-o", "json"], arguments].concat()).await;
    serde_json::from_str(&text).unwrap()
}

pub(super) async fn helm(arguments: &[&str]) -> String {
    let mut command = program(from_run("ROLLOUT_TEST_HELM"), arguments);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, HELM_HOME.path());
    }
    let output = run(command, "").await;
    succeeded(arguments, &output)
}

/// Installs or upgrades the release, and waits until it runs.
pub(super) async fn helm_install(values: &[&str]) {
    let chart = chart();
    let mut arguments = vec![
        "upgrade",
        "--install",
        RELEASE,
        &chart,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--wait",
        "--timeout=120s",
    ];
    for value in values {
        arguments.extend(["--set", value]);
    }
    helm(&arguments).await;
}

/// Until a command succeeds.
pub(super) async fn eventually(arguments: &[&str]) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !kubectl_can(arguments).await {
        assert!(
            Instant::now() < deadline,
            "still fails: {}",
            arguments.join(" ")
        );
    }
}

/// Takes the operator, its definitions and everything of theirs out of the cluster, also what an earlier test left half done.
pub(super) async fn nothing_installed() {
    if kubectl_can(&["get", "crd", "rolloutjobs.rollout-operator.dev"]).await {
        let all = ["rolloutjobs,sglangpools", "--all", "--all-namespaces"];
        kubectl(&[&["delete", "--wait=false"], all.as_slice()].concat()).await;
        // Where no operator runs, nobody takes the finalizer away.
        let left = object(&["rolloutjobs", "--all-namespaces"]).await;
        for job in left["items"].as_array().unwrap() {
            let metadata = &job["metadata"];
            let name = metadata["name"].as_str().unwrap();
            let namespace = metadata["namespace"].as_str().unwrap();
            let patch = r#"{"metadata": {"finalizers": null}}"#;
            kubectl_can(&[
                "-n",
                namespace,
                "patch",
                "rolloutjob",
                name,
                "--type=merge",
                "-p",
                patch,
            ])
            .await;
        }
    }
    helm(&[
        "uninstall",
        RELEASE,
        "--namespace",
        NAMESPACE,
        "--ignore-not-found",
        "--wait",
        "--timeout=60s",
    ])
    .await;
    let manifest = install_manifest();
    kubectl(&[
        "delete",
        "--ignore-not-found",
        "--timeout=90s",
        "-f",
        &manifest,
    ])
    .await;
}
