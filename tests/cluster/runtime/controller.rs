//! A controller as a process of its own, in a namespace of its own.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Longest wait for something that should happen at once: on two cores a dozen programs for each test have the same wish.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
/// Between two looks at the API server: first, and after many. Whoever looks all the time takes its time from what is waited for.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// A controller that ends with the test.
pub(crate) struct Controller {
    child: Child,
    pub(crate) url: String,
    http: reqwest::Client,
    log: PathBuf,
    _home: TempDir,
}

impl Controller {
    /// Starts one that looks at a namespace alone.
    pub(crate) async fn start(namespace: &str, more: &[&str]) -> Self {
        Self::start_of_image(namespace, "localhost/rollout-operator:dev", more).await
    }

    /// One that stands for the lease of its namespace, under a name of its own.
    pub(crate) async fn candidate(namespace: &str, name: &str, lease_seconds: u64) -> Self {
        let arguments = [
            "--leader-elect",
            "--lease-namespace",
            namespace,
            "--lease-seconds",
            &lease_seconds.to_string(),
            "--pod-name",
            name,
        ];
        Self::ready(namespace, &arguments).await
    }

    /// Wakes one that slept past its lease: it ends, and says why.
    pub(crate) async fn wakes_without_its_lease(&mut self) {
        self.signal(Signal::SIGCONT);
        let status = self.end().await;
        assert_eq!(status.code(), Some(1), "{}", self.log());
        assert!(
            self.log().contains("is lost: it was not renewed in time"),
            "{}",
            self.log()
        );
    }

    async fn start_of_image(namespace: &str, image: &str, more: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let key = home.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        let log = home.path().join("log");
        let program = std::env::var_os("ROLLOUT_TEST_OPERATOR").expect("the image's program");
        let mut child = Command::new(program)
            .args(["controller", "--image", image])
            .args([
                "--namespace",
                namespace,
                "--listen",
                "127.0.0.1:0",
                "--key-file",
            ])
            .arg(&key)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            panic!("the controller did not start: {}", read(&log));
        };
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: line["url"].as_str().unwrap().to_owned(),
            http: reqwest::Client::new(),
            log,
            _home: home,
        }
    }

    /// Starts one, and waits until it is ready.
    pub(crate) async fn ready(namespace: &str, more: &[&str]) -> Self {
        Self::start(namespace, more).await.once_ready().await
    }

    /// Starts one that renders another image of the operator, and waits until it is ready.
    pub(crate) async fn of_image(namespace: &str, image: &str) -> Self {
        let controller = Self::start_of_image(namespace, image, &[]).await;
        controller.once_ready().await
    }

    /// A candidate of the next version, whose image has another name.
    pub(crate) async fn of_version(namespace: &str, version: &str, image: &str) -> Self {
        let arguments = [
            "--leader-elect",
            "--lease-namespace",
            namespace,
            "--pod-name",
            version,
            "--called-version",
            version,
        ];
        let controller = Self::start_of_image(namespace, image, &arguments).await;
        controller.once_ready().await
    }

    async fn once_ready(self) -> Self {
        until("the controller is ready", &self, async || {
            self.get("/readyz").await.as_deref() == Some("ready\n")
        })
        .await;
        self
    }

    /// A page; none: nobody answers, or not with success.
    pub(crate) async fn get(&self, path: &str) -> Option<String> {
        let request = self
            .http
            .get(format!("{}{path}", self.url))
            .timeout(Duration::from_secs(2));
        let answer = request.send().await.ok()?.error_for_status().ok()?;
        answer.text().await.ok()
    }

    /// A page, whatever its status; empty: nobody answers.
    pub(crate) async fn page(&self, path: &str) -> String {
        let request = self
            .http
            .get(format!("{}{path}", self.url))
            .timeout(Duration::from_secs(2));
        match request.send().await {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// A figure of `/metrics`, by its name and labels; 0: it is not there.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await.unwrap_or_default();
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    pub(crate) async fn leads(&self) -> bool {
        self.figure("rollout_operator_leader").await > 0.0
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("the controller did not end: {}", read(&self.log)))
            .unwrap()
    }

    pub(crate) fn log(&self) -> String {
        read(&self.log)
    }
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Waits until something holds that should at once; says what did not, with the controller's log.
pub(crate) async fn until(what: &str, controller: &Controller, holds: impl AsyncFnMut() -> bool) {
    within(PATIENCE, what, controller, holds).await;
}

/// The same for what may take longer.
pub(crate) async fn within(
    limit: Duration,
    what: &str,
    controller: &Controller,
    mut holds: impl AsyncFnMut() -> bool,
) {
    let looks = async {
        let [mut pause, longest] = LOOKS;
        while !holds().await {
            tokio::time::sleep(pause).await;
            pause = longest.min(pause * 5 / 4);
        }
    };
    let in_time = tokio::time::timeout(limit, looks).await;
    assert!(in_time.is_ok(), "not in time: {what}\n{}", controller.log());
}
