//! A job of 10,000 samples with 2,000 at once over eight simulated engines.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::agents;
use crate::process::{Cpu, Process, operator};

const ENGINES: u32 = 8;
const SAMPLES: u32 = 10_000;
const SAMPLES_PER_PROMPT: u32 = 8;
const AT_ONCE: u32 = 2_000;
const CLAIM_SECRET: &str = "bench";

/// How often memory is read, and whether the job is over.
const LOOK: Duration = Duration::from_millis(100);

/// A job that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(15);

/// One `/generate` request to a sample.
pub(crate) async fn single_turn() {
    let generate = json!({"singleTurn": {}});
    let reward = json!({"type": "Math"});
    let mut job = Job::start("single turn", &generate, &reward);
    job.wait().await;
}

/// An agent of three turns to a sample, the launchers and agents played by this process.
pub(crate) async fn agentic() {
    let generate = json!({"agentic": {"maxSequenceTokens": 16_384, "sessionDeadlineSeconds": 600}});
    let reward = json!({"type": "Agent"});
    let mut job = Job::start("agentic, three turns", &generate, &reward);
    let mut agents = JoinSet::new();
    for number in 0..AT_ONCE {
        agents.spawn(agents::run(
            job.router.url("agents_url"),
            agents::claim_token(CLAIM_SECRET, number),
        ));
    }
    job.wait().await;
    agents.shutdown().await;
}

struct Job {
    name: &'static str,
    directory: TempDir,
    _engines: Vec<Process>,
    router: Process,
    driver: Process,
    started: Instant,
}

impl Job {
    fn start(name: &'static str, generate: &Value, reward: &Value) -> Self {
        let directory = TempDir::new().unwrap();
        let path = |file: &str| directory.path().join(file).display().to_string();
        std::fs::write(path("claim-secret"), CLAIM_SECRET).unwrap();
        write_dataset(Path::new(&path("dataset.jsonl")));
        let engines: Vec<Process> = (0..ENGINES)
            .map(|index| {
                let config = json!({
                    "seed": index,
                    "maxRunningRequests": 512,
                    "kvCacheTokens": 2_000_000,
                    "replies": {"oracle": {"words": {"min": 40, "max": 160}, "dataset": {"path": path("dataset.jsonl")}}},
                });
                let file = path(&format!("engine-{index}.json"));
                std::fs::write(&file, config.to_string()).unwrap();
                Process::announcing(operator(&["simulate-engine", "--exit-with-stdin", "--port", "0", "--config", &file]))
            })
            .collect();
        let secret = path("claim-secret");
        let mut arguments = vec![
            "router",
            "--exit-with-stdin",
            "--job",
            "bench",
            "--claim-secret-file",
            &secret,
        ];
        let urls: Vec<String> = engines.iter().map(|engine| engine.url("url")).collect();
        for url in &urls {
            arguments.extend(["--engine", url]);
        }
        let router = Process::announcing(operator(&arguments));
        let config = json!({
            "version": 1,
            "job": {"name": "bench", "namespace": "default", "uid": "6f1c1c1e-bench", "attempt": 1},
            "spec": {
                "dataset": {"labelKey": "label"},
                "rollout": {
                    "batchSize": SAMPLES / SAMPLES_PER_PROMPT,
                    "samplesPerPrompt": SAMPLES_PER_PROMPT,
                    "concurrency": {"sessions": AT_ONCE, "requestsPerEngine": AT_ONCE / ENGINES},
                },
                "sampling": {"maxNewTokens": 1024},
                "generate": generate,
                "reward": reward,
            },
            "dataset_path": path("dataset.jsonl"),
            "ledger_dir": path("ledger"),
            "output_dir": path("output"),
            "router_url": router.url("control_url"),
            "tokenizer": "builtin",
            "termination_message_path": path("last-word.json"),
        });
        std::fs::create_dir_all(path("ledger")).unwrap();
        std::fs::create_dir_all(path("output")).unwrap();
        std::fs::write(path("driver.json"), config.to_string()).unwrap();
        let started = Instant::now();
        let driver = Process::announcing(operator(&[
            "driver",
            "--exit-with-stdin",
            "--config",
            &path("driver.json"),
        ]));
        Self {
            name,
            directory,
            _engines: engines,
            router,
            driver,
            started,
        }
    }

    /// Waits for the driver's end and prints what the job cost.
    async fn wait(&mut self) {
        let mut peaks = [0.0_f64; 2];
        while !has_ended(&self.driver) {
            for (peak, process) in peaks.iter_mut().zip([&self.driver, &self.router]) {
                *peak = peak.max(process.peak_mebibytes().unwrap_or(0.0));
            }
            assert!(self.started.elapsed() < PATIENCE, "the job does not end");
            tokio::time::sleep(LOOK).await;
        }
        let wall = self.started.elapsed().as_secs_f64();
        let [driver, router] = [self.driver.cpu(), self.router.cpu()];
        let word = std::fs::read_to_string(self.directory.path().join("last-word.json")).unwrap();
        let word: Value = serde_json::from_str(&word).unwrap();
        assert_eq!(word["result"]["success"], true, "{word}");
        let samples = word["output"]["samples"].as_u64().unwrap();
        assert_eq!(samples, u64::from(SAMPLES), "{word}");
        let total = |cpu: Cpu| cpu.total().as_secs_f64();
        println!(
            "job of {SAMPLES} samples, {AT_ONCE} at once, {}: {wall:.0} s; CPU of driver {:.1} s, router {:.1} s, together {:.2} cores; \
             memory of driver {:.0} MiB, router {:.0} MiB, together {:.0} MiB",
            self.name,
            total(driver),
            total(router),
            (total(driver) + total(router)) / wall,
            peaks[0],
            peaks[1],
            peaks[0] + peaks[1],
        );
    }
}

fn write_dataset(path: &Path) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for number in 0..SAMPLES / SAMPLES_PER_PROMPT {
        let question = format!(
            "What is {number} plus {}? Give the answer in \\boxed{{}}.",
            number + 7
        );
        let row = json!({"prompt": [{"role": "user", "content": question}], "label": (2 * number + 7).to_string()});
        writeln!(file, "{row}").unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
}

/// Whether a process has ended. It is not reaped, so that its CPU time can still be read.
fn has_ended(process: &Process) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    stat.rsplit_once(')')
        .unwrap()
        .1
        .trim_start()
        .starts_with('Z')
}
