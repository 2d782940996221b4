//! A pool, a router, and what a job leaves behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rollout_driver::config::DriverConfig;
use rollout_driver::error::DriverError;
use rollout_driver::output::{Manifest, verify};
use rollout_driver::run::Driver;
use rollout_engine::JobResult;
use rollout_router::{Config as RouterConfig, Listeners, Router};
use rollout_session::Sample;
use serde_json::{Value, json};
use sglang_simulator::{Config as SimulatorConfig, Simulator};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// No test waits longer for anything.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Simulated engines behind a router.
pub(crate) struct Pool {
    pub(crate) simulators: Vec<Simulator>,
    pub(crate) router: Router,
    pub(crate) control_url: String,
    pub(crate) agents_url: String,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// An engine that is fast, and right in half of its answers.
pub(crate) fn engine(pairs: &[(&str, &str)]) -> SimulatorConfig {
    let pairs: Vec<Value> = pairs
        .iter()
        .map(|(prompt, label)| json!({"prompt": prompt, "label": label}))
        .collect();
    serde_json::from_value(json!({
        "timeScale": 1000,
        "replies": {"oracle": {"correctPercent": 50, "dataset": {"pairs": pairs}}},
    }))
    .unwrap()
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

impl Pool {
    pub(crate) async fn start(engines: Vec<SimulatorConfig>) -> Self {
        Self::with_router(engines, |_| {}).await
    }

    pub(crate) async fn with_router(
        engines: Vec<SimulatorConfig>,
        adjust: impl FnOnce(&mut RouterConfig),
    ) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut urls = Vec::new();
        let mut simulators = Vec::new();
        for config in engines {
            let simulator = Simulator::new(config).unwrap();
            let (listener, url) = listen().await;
            let (served, until) = (simulator.clone(), stop.clone());
            tasks.spawn(async move {
                served.serve(listener, until).await.ok();
            });
            urls.push(url);
            simulators.push(simulator);
        }
        let mut config = RouterConfig::new(urls);
        config.claim_secret = Some("secret".into());
        config.times.shutdown = Duration::from_millis(500);
        adjust(&mut config);
        let router = Router::new(config).unwrap();
        let (agents, agents_url) = listen().await;
        let (control, control_url) = listen().await;
        let (served, until) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            served
                .serve(Listeners { agents, control }, until)
                .await
                .unwrap();
        });
        Self {
            simulators,
            router,
            control_url,
            agents_url,
            stop,
            tasks,
        }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A job's directories and configuration.
pub(crate) struct Job {
    pub(crate) directory: TempDir,
    pub(crate) config: Value,
}

pub(crate) const SUMS: [(&str, &str); 6] = [
    ("What is 1 + 1?", "2"),
    ("What is 2 + 3?", "5"),
    ("What is 4 + 4?", "8"),
    ("What is 9 - 3?", "6"),
    ("What is 5 + 7?", "12"),
    ("What is 8 - 8?", "0"),
];

impl Job {
    /// A single-turn job on sums, with rewards by the MATH grader. `spec` is merged over its spec.
    pub(crate) fn new(router_url: &str, spec: &Value) -> Self {
        let directory = TempDir::new().unwrap();
        let rows: Vec<Value> = SUMS
            .iter()
            .map(|(prompt, label)| json!({"prompt": prompt, "label": label}))
            .collect();
        let mut config = json!({
            "version": 1,
            "job": {"name": "sums", "namespace": "default", "uid": "uid-1", "attempt": 1},
            "spec": {
                "dataset": {"inline": rows},
                "rollout": {"batchSize": 2, "samplesPerPrompt": 2},
                "sampling": {"maxNewTokens": 200},
                "generate": {"singleTurn": {}},
                "reward": {"type": "Math"},
                "teardown": {"drainSeconds": 2, "abortHookSeconds": 2},
            },
            "ledger_dir": directory.path().join("ledger"),
            "output_dir": directory.path().join("out"),
            "router_url": router_url,
            "termination_message_path": directory.path().join("last-word.json"),
            "timeouts": {"router_seconds": 5.0, "request_seconds": 20.0, "refill_seconds": 0.01},
        });
        merge(&mut config["spec"], spec);
        Self { directory, config }
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.directory.path().join("out")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.directory.path().join("ledger")
    }

    pub(crate) fn config(&self) -> DriverConfig {
        DriverConfig::parse(&self.config.to_string()).unwrap()
    }

    /// Runs the job to its end.
    pub(crate) async fn run(&self) -> Result<JobResult, DriverError> {
        self.run_until(CancellationToken::new()).await
    }

    pub(crate) async fn run_until(
        &self,
        stop: CancellationToken,
    ) -> Result<JobResult, DriverError> {
        let driver = Driver::start(self.config()).await?;
        let board = driver.board().clone();
        tokio::time::timeout(SOON, driver.run(stop))
            .await
            .unwrap_or_else(|_| panic!("the job does not end: {}", board.json()))
    }

    pub(crate) fn manifest(&self) -> Manifest {
        Manifest::read(&self.output()).unwrap().expect("a manifest")
    }

    /// The samples of a step, after the verifier has found nothing wrong with the output.
    pub(crate) fn samples(&self, step: u32) -> Vec<Sample> {
        let report = verify(&self.output(), 16).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        rows(&self.output().join(format!("samples-{step}.jsonl")))
    }

    pub(crate) fn last_word(&self) -> Value {
        let text = std::fs::read(self.directory.path().join("last-word.json")).unwrap();
        assert!(text.len() <= 3072);
        serde_json::from_slice(&text).unwrap()
    }
}

pub(crate) fn rows(path: &Path) -> Vec<Sample> {
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
