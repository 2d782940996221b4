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
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// No test waits longer for anything.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Simulated engines behind a router.
pub(crate) struct Pool {
    pub(crate) simulators: Vec<Simulator>,
    pub(crate) control_url: String,
    pub(crate) agents_url: String,
    router: RouterConfig,
    router_stop: CancellationToken,
    router_process: Option<Runtime>,
    stop: CancellationToken,
    engine_tasks: JoinSet<()>,
}

/// An engine that is fast, and right in half of its answers.
pub(crate) fn engine(pairs: &[(&str, &str)]) -> SimulatorConfig {
    engine_with(pairs, &json!({}))
}

/// The same with other settings.
pub(crate) fn engine_with(pairs: &[(&str, &str)], settings: &Value) -> SimulatorConfig {
    let pairs: Vec<Value> = pairs
        .iter()
        .map(|(prompt, label)| json!({"prompt": prompt, "label": label}))
        .collect();
    let mut config = json!({
        "timeScale": 1000,
        "replies": {"oracle": {"correctPercent": 50, "dataset": {"pairs": pairs}}},
    });
    merge(&mut config, settings);
    serde_json::from_value(config).unwrap()
}

/// Engines that need `seconds` for an answer of `tokens` tokens, and always write that many.
pub(crate) fn slow_engine(tokens: u32, seconds: u32) -> SimulatorConfig {
    serde_json::from_value(json!({
        "decodeTokensPerSecond": (tokens / seconds).max(1),
        "decodeSlowdownPercent": 0,
        "replies": {"lengths": {"medianTokens": tokens, "sigmaPercent": 0, "tailPercent": 0}},
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
        Self::start_with(engines, |_| {}).await
    }

    /// The same with other settings of the router.
    pub(crate) async fn start_with(
        engines: Vec<SimulatorConfig>,
        adjust: impl FnOnce(&mut RouterConfig),
    ) -> Self {
        let stop = CancellationToken::new();
        let mut engine_tasks = JoinSet::new();
        let mut urls = Vec::new();
        let mut simulators = Vec::new();
        for config in engines {
            let simulator = Simulator::new(config).unwrap();
            let (listener, url) = listen().await;
            let (served, until) = (simulator.clone(), stop.clone());
            engine_tasks.spawn(async move {
                served.serve(listener, until).await.ok();
            });
            urls.push(url);
            simulators.push(simulator);
        }
        let mut router = RouterConfig::new(urls);
        router.claim_secret = Some("secret".into());
        router.times.shutdown = Duration::from_millis(500);
        router.times.probe = Duration::from_millis(200);
        adjust(&mut router);
        let (agents, agents_url) = listen().await;
        let (control, control_url) = listen().await;
        let mut pool = Self {
            simulators,
            control_url,
            agents_url,
            router,
            router_stop: CancellationToken::new(),
            router_process: None,
            stop,
            engine_tasks,
        };
        pool.serve(Listeners { agents, control });
        pool
    }

    fn serve(&mut self, listeners: Listeners) {
        let router = Router::new(self.router.clone()).unwrap();
        let until = self.router_stop.clone();
        // A runtime of its own stands for a process: it can be killed with everything that runs in it.
        let process = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        process.spawn(async move {
            let Listeners { agents, control } = listeners;
            let (agents, control) = (moved(agents), moved(control));
            router
                .serve(Listeners { agents, control }, until)
                .await
                .unwrap();
        });
        self.router_process = Some(process);
    }

    /// An engine that was killed is started again, at its address.
    pub(crate) async fn restart_engine(&mut self, at: usize, config: SimulatorConfig) {
        let listener = bind_again(&self.router.engines[at]).await;
        let simulator = Simulator::new(config).unwrap();
        let (served, until) = (simulator.clone(), self.stop.clone());
        self.engine_tasks.spawn(async move {
            served.serve(listener, until).await.ok();
        });
        self.simulators[at] = simulator;
    }

    /// The router is killed and stays away.
    pub(crate) fn kill_router(&mut self) {
        if let Some(process) = self.router_process.take() {
            process.shutdown_background();
        }
    }

    /// The router is killed and comes back on the same ports, with another instance id.
    pub(crate) async fn restart_router(&mut self) {
        self.kill_router();
        self.router_stop = CancellationToken::new();
        let agents = bind_again(&self.agents_url).await;
        let control = bind_again(&self.control_url).await;
        self.serve(Listeners { agents, control });
    }

    /// Requests to generate that the engines are at.
    pub(crate) fn in_flight(&self) -> u64 {
        let states = self.simulators.iter().map(Simulator::state);
        let paths = states.filter_map(|mut state| state.paths.remove("/generate"));
        paths.map(|path| path.active).sum()
    }

    pub(crate) async fn stop(mut self) {
        self.router_stop.cancel();
        self.stop.cancel();
        if let Some(process) = self.router_process.take() {
            process.shutdown_background();
        }
        self.engine_tasks.shutdown().await;
    }
}

/// Takes a listener along to the runtime of the caller.
fn moved(listener: TcpListener) -> TcpListener {
    TcpListener::from_std(listener.into_std().unwrap()).unwrap()
}

/// Binds a port as soon as the one who had it has let it go.
async fn bind_again(url: &str) -> TcpListener {
    let address = url.trim_start_matches("http://");
    for _ in 0..1000 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{address} does not become free");
}

/// Waits until a condition holds, at most [`SOON`].
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
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
                "rollout": {"batchSize": 2, "samplesPerPrompt": 2, "requestTimeoutSeconds": 20},
                "sampling": {"maxNewTokens": 200},
                "generate": {"singleTurn": {}},
                "reward": {"type": "Math"},
                "teardown": {"drainSeconds": 2, "abortHookSeconds": 2},
            },
            "ledger_dir": directory.path().join("ledger"),
            "output_dir": directory.path().join("out"),
            "router_url": router_url,
            "termination_message_path": directory.path().join("last-word.json"),
            "timeouts": {"router_seconds": 5.0, "refill_seconds": 0.01},
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
