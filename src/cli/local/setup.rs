//! From arguments and manifests to a job that can start: reads and checks everything before the first process is there.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use engine_http::Trust;
use rollout_driver::download::{self, Credentials, Limits, Wanted};
use serde_json::Value;

use super::{
    Args,
    agent_command::{self, FunctionFiles},
    commands::{LAST_WORD, LEDGER},
    engine_check,
    engines::{self, EngineFiles},
    inputs::{self, Code, Content, Inputs, Place},
    pod::Pods,
    progress::say,
    python,
    secrets::Secrets,
    tokenizer,
    workdir::{Job, WorkDir, shown},
    workplace,
};
use crate::api::{
    job::Output,
    manifest::{self, Purpose},
    support::Context as Target,
    values::ConfigMapKeyRef,
};
use crate::cli::printable::printable_line;

/// How long no byte of a data set may come; a person waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

/// A job that is ready to be started.
pub(super) struct Setup {
    pub(super) inputs: Inputs,
    pub(super) work: WorkDir,
    pub(super) pods: Option<Pods>,
    /// Engines that run already; empty: simulated ones.
    pub(super) engine_urls: Vec<String>,
    /// CAs of those behind https.
    pub(super) engine_ca: Option<PathBuf>,
    pub(super) simulated_engines: u32,
    pub(super) active_deadline: Option<Duration>,
    pub(super) backoff_limit: u32,
    /// Where every process writes.
    pub(super) logs: PathBuf,
    /// The job's spec, with its defaults written out.
    pub(super) spec: Value,
    pub(super) program: PathBuf,
    pub(super) python: PathBuf,
    pub(super) tokenizer: Option<PathBuf>,
    pub(super) dataset: PathBuf,
    pub(super) files: EngineFiles,
    pub(super) plugin_code: Option<PathBuf>,
    pub(super) secrets: Secrets,
    /// The driver's last word of an earlier run in this directory, as it is written.
    pub(super) earlier: Option<String>,
}

/// Reads and checks the manifests, and takes the output directory. `None`: the manifests are wrong, and that has been said.
pub(super) async fn prepare(args: &Args) -> anyhow::Result<Option<Setup>> {
    let Some(inputs) = read_inputs(args)? else {
        return Ok(None);
    };
    if let Some(agentic) = &inputs.spec.generate.agentic {
        agent_command::check(agentic, &inputs.agent_process)?;
    }
    let engine_urls = running_engines(args, &inputs).await?;
    let program = std::env::current_exe().context("find this program")?;
    let python = python::choose(args.python.as_deref(), runs_python(&inputs))
        .await?
        .unwrap_or_else(|| PathBuf::from("python3"));
    let spec_value = inputs::spec_value(&inputs.spec);
    let dataset_sha256 = dataset_hash(&inputs.dataset)?;
    let job = Job {
        name: &inputs.name,
        namespace: &inputs.namespace,
        spec: &spec_value,
        dataset_sha256: &dataset_sha256,
    };
    let work = WorkDir::open(&args.output, &job, Secrets::random_uid)?;
    let earlier = fs::read_to_string(work.state.join(LAST_WORD)).ok();
    let secrets = Secrets::generate();
    secrets
        .write(work.run.path())
        .context("write the run's secrets")?;
    let logs = work.directory("logs")?;
    work.directory(workplace::PLUGINS)?;
    say_where(&inputs, &work);
    let dataset = match &inputs.dataset {
        Content::File(path) => path.clone(),
        Content::Bytes(bytes) => work.write("dataset.jsonl", bytes)?,
        Content::Url { url, credentials } => fetch(&work, url, credentials.clone()).await?,
    };
    let known = if engine_urls.is_empty() && engines::know_the_data_set(&inputs.pool) {
        let rows = engines::known_rows(&spec_value, &inputs.spec.dataset, &dataset);
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
    let engine_ca = engine_ca(args, &inputs, &work)?;
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
        engine_ca,
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
        earlier,
        inputs,
    }))
}

/// Puts a data set where the driver finds it: simulated engines know its answers before the driver starts.
async fn fetch(
    work: &WorkDir,
    url: &str,
    credentials: Option<Credentials>,
) -> anyhow::Result<PathBuf> {
    let directory = work.directory(LEDGER)?.join(download::DIRECTORY);
    if download::fetched(url, &directory).await.is_none() {
        say(&format!("fetching {}", download::name(url)));
    }
    let wanted = Wanted {
        url,
        credentials,
        directory: &directory,
        trust: Trust::public(),
    };
    let limits = Limits::with_patience(PATIENCE);
    let fetching = download::fetch(wanted, limits).await;
    Ok(fetching.context("spec.dataset.url")?.path)
}

/// Says where the samples go, when the manifest names another place.
fn say_where(inputs: &Inputs, work: &WorkDir) {
    let Some(place) = inputs.spec.output.as_ref().and_then(place_of) else {
        return;
    };
    let output = shown(&work.output);
    say(&format!(
        "samples go to {output}; spec.output ({place}) is where they go on a cluster"
    ));
}

/// The file with the CAs of engines behind https: the one of the command line before the manifests' own.
fn engine_ca(args: &Args, inputs: &Inputs, work: &WorkDir) -> anyhow::Result<Option<PathBuf>> {
    Ok(match (&args.engine_ca, &inputs.engine_ca) {
        (Some(file), _) => Some(fs::canonicalize(file)?),
        (None, Some(pem)) => Some(work.write("engine-ca.pem", pem)?),
        (None, None) => None,
    })
}

/// The engines that run already, once they have said that they are engines and it is clear who tokenizes.
async fn running_engines(args: &Args, inputs: &Inputs) -> anyhow::Result<Vec<String>> {
    let urls = engines::running(&args.engines, inputs)?;
    if let Some(directory) = &args.tokenizer {
        tokenizer::check(directory)?;
    } else if !urls.is_empty()
        && let Some(hint) = tokenizer::without(&inputs.spec)?
    {
        say(hint);
    }
    engine_check::all(&urls, &trusted(args, inputs)?).await?;
    Ok(urls)
}

/// Who may vouch for engines behind https.
fn trusted(args: &Args, inputs: &Inputs) -> anyhow::Result<Trust> {
    match (&args.engine_ca, &inputs.engine_ca) {
        (Some(file), _) => Ok(crate::cli::engine_ca::CaFile::open(file)?.trust()),
        (None, Some(pem)) => Trust::only(&String::from_utf8_lossy(pem))
            .context("spec.external.tls.caConfigMapKeyRef is no CA"),
        (None, None) => Ok(Trust::public()),
    }
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
                say(&printable_line(&finding.to_string()));
            }
            return Ok(None);
        }
    };
    for warning in &manifests.warnings {
        say(&printable_line(&warning.to_string()));
    }
    let volumes = args.volumes.iter().cloned().collect();
    Ok(Some(inputs::resolve(
        &manifests,
        args.job.as_deref(),
        &volumes,
    )?))
}

impl Setup {
    /// Where the rows come from, for a message that names the file which they were written to.
    pub(super) fn origin_of_rows(&self, message: &str) -> Option<String> {
        let file = self.dataset.display().to_string();
        if !matches!(self.inputs.dataset, Content::Bytes(_)) || !message.contains(&file) {
            return None;
        }
        let origin = match &self.inputs.spec.dataset.config_map {
            Some(ConfigMapKeyRef { name, key }) => format!("the key {key} of ConfigMap {name}"),
            None => "spec.dataset.inline".to_owned(),
        };
        Some(format!("{} is {origin}", shown(&self.dataset)))
    }
}

fn dataset_hash(dataset: &Content) -> anyhow::Result<String> {
    let name = match dataset {
        Content::File(path) => path.display().to_string(),
        Content::Bytes(_) => "of the manifest".to_owned(),
        Content::Url { url, .. } => download::name(url),
    };
    let hash = dataset.sha256();
    hash.with_context(|| format!("cannot read the data set {name}"))
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
    let process = &inputs.agent_process;
    let agent = agent_command::arguments(agentic, &files, process)?;
    if let Place::Own { start } = &process.place
        && agentic.agent.function.is_none()
    {
        say_what_is_left_behind(&agent, start);
    }
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
        environment: process.environment.clone(),
        place: process.place.clone(),
        workplaces: work.state.join(workplace::AGENTS),
        loads: agentic
            .agent
            .function
            .as_ref()
            .map(|function| module(&function.path.0, code)),
        secrets: secrets.clone(),
    }))
}

/// A command's arguments that are files here, where its process does not work.
fn say_what_is_left_behind(words: &[String], start: &Path) {
    for word in workplace::left_behind(words, start) {
        say(&format!(
            "note: the agent works in a directory of its own, where there is no {word}; write {}, or set the container's workingDir",
            start.join(word).display()
        ));
    }
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
