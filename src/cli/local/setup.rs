//! From arguments and manifests to commands: reads and checks everything before the first process starts.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use rollout_driver::config::{DriverConfig, engine_config};
use serde_json::{Value, json};

use super::{
    Args,
    agent_command::{self, FunctionFiles},
    agents::RouterUrls,
    control::Control,
    engine_check,
    engines::{self, EngineFiles, simulator_config, simulator_spec},
    inputs::{self, Code, Content, Inputs},
    last_word::LastWord,
    patience,
    pod::Pods,
    progress::say,
    python,
    secrets::Secrets,
    service::Spec,
    tokenizer,
    workdir::{Job, WorkDir, shown},
};
use crate::api::{
    job::Output,
    manifest::{self, Purpose},
    support::Context as Target,
};

/// A job that is ready to be started.
pub(super) struct Setup {
    pub(super) inputs: Inputs,
    pub(super) work: WorkDir,
    pub(super) pods: Option<Pods>,
    /// Engines that run already; empty: simulated ones.
    pub(super) engine_urls: Vec<String>,
    pub(super) simulated_engines: u32,
    pub(super) active_deadline: Option<Duration>,
    pub(super) backoff_limit: u32,
    /// Where every process writes.
    pub(super) logs: PathBuf,
    /// The job's spec, with its defaults written out.
    spec: Value,
    program: PathBuf,
    python: PathBuf,
    tokenizer: Option<PathBuf>,
    dataset: PathBuf,
    files: EngineFiles,
    plugin_code: Option<PathBuf>,
    secrets: Secrets,
}

/// Reads and checks the manifests, and takes the output directory. `None`: the manifests are wrong, and that has been said.
pub(super) async fn prepare(args: &Args) -> anyhow::Result<Option<Setup>> {
    let Some(inputs) = read_inputs(args)? else {
        return Ok(None);
    };
    let engine_urls = engines::running(&args.engines, &inputs)?;
    if let Some(directory) = &args.tokenizer {
        tokenizer::check(directory)?;
    } else if !engine_urls.is_empty()
        && let Some(hint) = tokenizer::without(&inputs.spec)?
    {
        say(hint);
    }
    engine_check::all(&engine_urls).await?;
    let program = std::env::current_exe().context("find this program")?;
    let python = python::choose(args.python.as_deref(), runs_python(&inputs))
        .await?
        .unwrap_or_else(|| PathBuf::from("python3"));
    let spec_value = inputs::spec_value(&inputs.spec);
    let dataset_sha256 = inputs.dataset.sha256().context("read the data set")?;
    let job = Job {
        name: &inputs.name,
        namespace: &inputs.namespace,
        spec: &spec_value,
        dataset_sha256: &dataset_sha256,
    };
    let work = WorkDir::open(&args.output, &job, Secrets::random_uid)?;
    let secrets = Secrets::generate();
    secrets
        .write(work.run.path())
        .context("write the run's secrets")?;
    let logs = work.directory("logs")?;
    if let Some(place) = inputs.spec.output.as_ref().and_then(place_of) {
        let output = shown(&work.output);
        say(&format!(
            "samples go to {output}; spec.output ({place}) is where they go on a cluster"
        ));
    }
    let dataset = match &inputs.dataset {
        Content::File(path) => path.clone(),
        Content::Bytes(bytes) => work.write("dataset.jsonl", bytes)?,
    };
    let known = if engine_urls.is_empty() && engines::know_the_data_set(&inputs.pool) {
        let rows = engines::known_rows(&inputs.spec.dataset, &dataset)?;
        rows.map(|rows| work.write("known.jsonl", &rows))
            .transpose()?
    } else {
        None
    };
    let oracle_dataset = inputs
        .oracle_dataset
        .as_ref()
        .map(|bytes| work.write("oracle.jsonl", bytes))
        .transpose()?;
    let script = inputs
        .script
        .as_ref()
        .map(|bytes| work.write("script.yaml", bytes))
        .transpose()?;
    let plugin_code = inputs
        .plugin_code
        .as_ref()
        .map(|code| place_code(&work, "plugins", code))
        .transpose()?;
    let agent_code = inputs
        .agent_code
        .as_ref()
        .map(|code| place_code(&work, "agent", code))
        .transpose()?;
    let pods = pods(
        args,
        &inputs,
        &work,
        &secrets,
        &program,
        &python,
        agent_code.as_deref(),
        &logs,
    )?;
    let spec = &inputs.spec;
    Ok(Some(Setup {
        pods,
        simulated_engines: u32::try_from(inputs.pool.replicas).unwrap_or(1).max(1),
        active_deadline: spec
            .active_deadline_seconds
            .map(|seconds| Duration::from_secs(seconds.unsigned_abs().into())),
        backoff_limit: spec.backoff_limit.unsigned_abs(),
        engine_urls,
        work,
        spec: spec_value,
        program,
        python,
        tokenizer: args.tokenizer.clone(),
        dataset,
        files: EngineFiles {
            dataset: known,
            oracle_dataset,
            script,
        },
        plugin_code,
        logs,
        secrets,
        inputs,
    }))
}

fn read_inputs(args: &Args) -> anyhow::Result<Option<Inputs>> {
    let manifests = match manifest::load(
        &args.files,
        Purpose {
            context: Target::Local,
            complete: true,
        },
    ) {
        Ok(manifests) => manifests,
        Err(rejected) => {
            for finding in &rejected.findings {
                say(&finding.to_string());
            }
            return Ok(None);
        }
    };
    for warning in &manifests.warnings {
        say(&warning.to_string());
    }
    let volumes = args.volumes.iter().cloned().collect();
    Ok(Some(inputs::resolve(
        &manifests,
        args.job.as_deref(),
        &volumes,
    )?))
}

/// Where a manifest wants its samples.
fn place_of(output: &Output) -> Option<String> {
    let claim = output.persistent_volume_claim.as_ref();
    let claim = claim.map(|claim| format!("claim {}", claim.claim_name));
    claim.or_else(|| output.url.clone())
}

fn runs_python(inputs: &Inputs) -> bool {
    let agentic = inputs.spec.generate.agentic.as_ref();
    inputs.spec.plugins.is_some() || agentic.is_some_and(|agentic| agentic.agent.function.is_some())
}

fn place_code(work: &WorkDir, name: &str, code: &Code) -> anyhow::Result<PathBuf> {
    match code {
        Code::Directory(path) => Ok(path.clone()),
        Code::Files(files) => {
            let directory = work.directory(&format!("code/{name}"))?;
            for (file, content) in files {
                work.write(&format!("code/{name}/{file}"), content)?;
            }
            Ok(directory)
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "one call, made once")]
fn pods(
    args: &Args,
    inputs: &Inputs,
    work: &WorkDir,
    secrets: &Secrets,
    program: &Path,
    python: &Path,
    code: Option<&Path>,
    logs: &Path,
) -> anyhow::Result<Option<Pods>> {
    let Some(agentic) = &inputs.spec.generate.agentic else {
        return Ok(None);
    };
    let parameters = work.write("parameters.json", &serde_json::to_vec(&agentic.parameters)?)?;
    let files = FunctionFiles {
        python,
        code,
        parameters: &parameters,
    };
    let agent = agent_command::arguments(agentic, &files)?;
    let slots = args.pods.min(sessions_at_once(inputs));
    Ok(Some(Pods {
        program: program.to_owned(),
        job: inputs.name.clone(),
        slots,
        concurrent: agentic.concurrent_sessions_per_pod.unsigned_abs(),
        sessions_per_pod: agentic.sessions_per_pod.unsigned_abs(),
        directory: work.run.path().to_owned(),
        logs: logs.to_owned(),
        agent,
        loads: agentic
            .agent
            .function
            .as_ref()
            .map(|function| module(&function.path.0, code)),
        secrets: secrets.clone(),
    }))
}

/// The file of the module of `module.function` where it is among the job's own, else its name.
fn module(path: &str, code: Option<&Path>) -> String {
    let module = path.rsplit_once('.').map_or(path, |(module, _)| module);
    let file = module.replace('.', "/") + ".py";
    match code {
        Some(code) if code.join(&file).is_file() => file,
        _ => format!("the module {module}"),
    }
}

fn sessions_at_once(inputs: &Inputs) -> u32 {
    inputs
        .spec
        .rollout
        .concurrency
        .sessions
        .map_or(u32::MAX, i32::unsigned_abs)
}

impl Setup {
    /// The router's control port.
    pub(super) fn control(&self, router: &RouterUrls) -> anyhow::Result<Control> {
        let token = &self.secrets.control_token;
        Ok(Control::new(&router.control_url, token, &self.inputs.name)?)
    }

    /// The command of simulated engine `index`, built from what it announced before.
    pub(super) fn engine_spec(
        &self,
        index: u32,
    ) -> anyhow::Result<impl Fn(&Value) -> Spec + Send + Sync + 'static> {
        let config = simulator_config(&self.inputs, &self.files, index.into());
        let path = self.work.write(
            &format!("engine-{index}.json"),
            &serde_json::to_vec_pretty(&config)?,
        )?;
        let (program, logs) = (self.program.clone(), self.logs.clone());
        Ok(move |announced: &Value| {
            simulator_spec(&program, index as usize, &path, &logs, announced)
        })
    }

    /// The command of the router. After a restart it takes its old ports again: driver and agents know it by those.
    pub(super) fn router_spec(
        &self,
        engines: &[String],
    ) -> impl Fn(&Value) -> Spec + Send + Sync + 'static {
        let run = self.work.run.path().to_owned();
        let (program, log) = (self.program.clone(), self.logs.join("router.log"));
        let job = self.inputs.name.clone();
        let engines = engines.to_owned();
        move |announced: &Value| {
            let address = |name: &str| {
                let url = announced[name]
                    .as_str()
                    .and_then(|url| url.strip_prefix("http://"));
                url.map_or_else(
                    || "127.0.0.1:0".to_owned(),
                    |address| address.trim_end_matches('/').to_owned(),
                )
            };
            let file = |name: &str| run.join(name).display().to_string();
            let mut args: Vec<String> = ["router", "--exit-with-stdin", "--job", &job]
                .map(str::to_owned)
                .to_vec();
            args.extend(["--agents-listen".to_owned(), address("agents_url")]);
            args.extend(["--control-listen".to_owned(), address("control_url")]);
            args.extend(["--control-token-file".to_owned(), file("control-token")]);
            args.extend(["--claim-secret-file".to_owned(), file("claim-secret")]);
            for engine in &engines {
                args.extend(["--engine".to_owned(), engine.clone()]);
            }
            Spec {
                name: "router".to_owned(),
                program: program.clone(),
                args,
                first_line: None,
                log: log.clone(),
                announces: true,
            }
        }
    }

    /// The command of the plug-in host, when the job has plug-ins.
    pub(super) fn plugin_host(&self) -> Option<Spec> {
        self.inputs.spec.plugins.as_ref()?;
        let mut args: Vec<String> = ["plugins", "--exit-with-stdin", "--socket"]
            .map(str::to_owned)
            .to_vec();
        args.push(self.plugin_socket().display().to_string());
        args.extend(["--python".to_owned(), self.python.display().to_string()]);
        if let Some(code) = &self.plugin_code {
            args.extend(["--code".to_owned(), code.display().to_string()]);
        }
        Some(Spec {
            name: "plug-in host".to_owned(),
            program: self.program.clone(),
            args,
            first_line: None,
            log: self.logs.join("plugins.log"),
            announces: false,
        })
    }

    fn plugin_socket(&self) -> PathBuf {
        self.work.run.path().join("plugins.sock")
    }

    fn last_word_path(&self) -> PathBuf {
        self.work.state.join("last-word.json")
    }

    /// Writes the driver's configuration, now that the router is known.
    pub(super) fn write_driver_config(&self, router: &RouterUrls) -> anyhow::Result<PathBuf> {
        let simulated = self.engine_urls.is_empty();
        let config = json!({
            "version": 1,
            "job": {
                "name": self.inputs.name,
                "namespace": self.inputs.namespace,
                "uid": self.work.uid,
                "attempt": self.work.attempt,
            },
            "spec": self.spec,
            "dataset_path": self.dataset,
            "ledger_dir": self.work.directory("ledger")?,
            "output_dir": self.work.output,
            "router_url": router.control_url,
            "control_token_file": self.work.run.path().join("control-token"),
            "plugin_socket": self.inputs.spec.plugins.as_ref().map(|_| self.plugin_socket()),
            "tokenizer": (simulated && self.tokenizer.is_none()).then_some("builtin"),
            "tokenizer_dir": self.tokenizer,
            "status_listen": "127.0.0.1:0",
            "termination_message_path": self.last_word_path(),
        });
        Ok(self
            .work
            .write("driver.json", &serde_json::to_vec_pretty(&config)?)?)
    }

    /// The command of the driver.
    pub(super) fn driver_spec(&self, config: &Path) -> Spec {
        let config = config.display().to_string();
        Spec {
            name: "driver".to_owned(),
            program: self.program.clone(),
            args: ["driver", "--exit-with-stdin", "--config", &config]
                .map(str::to_owned)
                .to_vec(),
            first_line: None,
            log: self.logs.join("driver.log"),
            announces: true,
        }
    }

    /// How long the driver may take after SIGTERM, by its own configuration.
    pub(super) fn driver_patience(config: &Path) -> anyhow::Result<Duration> {
        let config = DriverConfig::load(config).context("the driver's configuration")?;
        // Neither the rows nor the engines change the ladder.
        Ok(patience::of(&engine_config(&config, 1, 1).ladder))
    }

    /// How the job ended, in the driver's word.
    pub(super) fn last_word(&self) -> anyhow::Result<LastWord> {
        let path = self.last_word_path();
        let text = fs::read_to_string(&path).with_context(|| {
            format!("the driver ended without a last word in {}", path.display())
        })?;
        LastWord::read(&text)
    }
}
