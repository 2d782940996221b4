//! What a local run is made of: one job, its pool, and the files that its `ConfigMap`s, volumes and URLs stand for.
//!
//! Pure but for reading the files that the manifests name. A cluster has volumes; here `--volume CLAIM=DIR` says which directory a claim is.

mod finder;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use kube::ResourceExt;
use rollout_driver::download::Credentials;
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::finder::Finder;
use super::{
    environment::{Environment, EnvironmentError, Objects},
    secrets::hex,
};
use crate::api::{
    job::{RolloutJob, RolloutJobSpec},
    manifest::Manifests,
    pool::SGLangPoolSpec,
};

/// Namespace of an object that names none, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";

/// A reason why the manifests cannot be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("no RolloutJob in the given files")]
    NoJob,
    #[error("the files have several jobs ({}); choose one with --job NAME", names.join(", "))]
    SeveralJobs { names: Vec<String> },
    #[error("no RolloutJob '{name}' in the given files; there are: {}", names.join(", "))]
    NoSuchJob { name: String, names: Vec<String> },
    #[error(
        "spec.poolRef.name: no SGLangPool '{name}' in the given files; add the file that has it"
    )]
    NoPool { name: String },
    #[error("{field}: no ConfigMap '{name}' in the given files; add the file that has it")]
    NoConfigMap { field: &'static str, name: String },
    #[error("{field}: no Secret '{name}' in the given files; add the file that has it")]
    NoSecret { field: &'static str, name: String },
    #[error("{field}: ConfigMap '{name}' has no key '{key}'; it has: {}", keys.join(", "))]
    NoKey {
        field: &'static str,
        name: String,
        key: String,
        keys: Vec<String>,
    },
    #[error(
        "{field}: without a cluster the claim '{claim}' is a directory: say which with --volume {claim}=DIR"
    )]
    NoVolume { field: &'static str, claim: String },
    #[error("{field}: {path}")]
    Read {
        field: &'static str,
        path: String,
        source: io::Error,
    },
    #[error("spec.suspend: a suspended job does not run; remove suspend: true to run it here")]
    Suspended,
    #[error("the current directory cannot be told; change to one that is there")]
    Nowhere(#[source] io::Error),
    #[error(
        "{at}.workingDir: there is no directory {path} on this machine; make it, or remove workingDir"
    )]
    NoWorkingDirectory { at: String, path: String },
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("{field}: {problem}")]
    NotLocal {
        field: &'static str,
        problem: String,
    },
}

/// A file that exists, or one to be written or fetched.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    File(PathBuf),
    Bytes(Vec<u8>),
    Url {
        url: String,
        credentials: Option<Credentials>,
    },
}

impl Content {
    /// SHA-256 in hex. Reads a file piece by piece; what is fetched is fetched once, so that its URL stands for it.
    pub(super) fn sha256(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        match self {
            Self::Bytes(bytes) => hash.update(bytes),
            Self::Url { url, .. } => hash.update(url),
            Self::File(path) => {
                let mut file = io::BufReader::with_capacity(1 << 20, fs::File::open(path)?);
                loop {
                    let piece = io::BufRead::fill_buf(&mut file)?;
                    if piece.is_empty() {
                        break;
                    }
                    hash.update(piece);
                    let length = piece.len();
                    io::BufRead::consume(&mut file, length);
                }
            }
        }
        Ok(hex(&hash.finalize()))
    }
}

/// Python code: a directory that exists, or files to be written into one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Code {
    Directory(PathBuf),
    Files(BTreeMap<String, Vec<u8>>),
}

/// Where a process that runs the user's code works.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    /// In its `workingDir`.
    Given(PathBuf),
    /// In a directory of its own; its words mean what they mean here, where `local` was started.
    Own { start: PathBuf },
}

/// What a container's fields say about a process that runs the user's code.
#[derive(Debug)]
pub(super) struct UserProcess {
    pub(super) environment: Environment,
    pub(super) place: Place,
}

/// Everything that a run needs to know.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) spec: RolloutJobSpec,
    pub(super) pool_name: String,
    pub(super) pool: SGLangPoolSpec,
    pub(super) dataset: Content,
    pub(super) agent_code: Option<Code>,
    pub(super) plugin_code: Option<Code>,
    /// What the manifest says about the agent's process.
    pub(super) agent_process: UserProcess,
    /// The same of the plug-in host, when there are plug-ins.
    pub(super) plugin_process: Option<UserProcess>,
    /// CAs of the pool's external engines, as PEM text.
    pub(super) engine_ca: Option<Vec<u8>>,
    /// Script of the simulated engines.
    pub(super) script: Option<Vec<u8>>,
    /// Data set of the simulated engines' oracle, when it is not the job's.
    pub(super) oracle_dataset: Option<Vec<u8>>,
}

/// Directories that stand for claims, by claim name.
pub(super) type Volumes = BTreeMap<String, PathBuf>;

/// Chooses the job and resolves what it refers to.
pub(super) fn resolve(
    manifests: &Manifests,
    job: Option<&str>,
    volumes: &Volumes,
) -> Result<Inputs, InputError> {
    let job = choose(manifests, job)?;
    if job.spec.suspend {
        return Err(InputError::Suspended);
    }
    let namespace = job.namespace();
    let finder = Finder {
        manifests,
        namespace: namespace.as_deref(),
        volumes,
    };
    let spec = job.spec.clone();
    let (pool_name, pool) = match (&spec.pool, &spec.pool_ref) {
        (Some(pool), _) => (job.name_any(), pool.clone()),
        (None, Some(reference)) => {
            let pool_namespace = reference.namespace.as_deref().or(namespace.as_deref());
            let found = manifests.pool(pool_namespace, &reference.name);
            let found = found.ok_or_else(|| InputError::NoPool {
                name: reference.name.clone(),
            })?;
            (found.name_any(), found.spec.clone())
        }
        (None, None) => {
            return Err(InputError::NoPool {
                name: String::new(),
            });
        }
    };
    let agent = spec
        .generate
        .agentic
        .as_ref()
        .and_then(|agentic| agentic.agent.function.as_ref());
    let agent_code = agent.and_then(|function| function.code.as_ref());
    let plugin_code = spec
        .plugins
        .as_ref()
        .and_then(|plugins| plugins.code.as_ref());
    let objects = Objects {
        manifests,
        namespace: namespace.as_deref(),
    };
    let agentic = spec.generate.agentic.as_ref();
    let agent_container =
        agentic.and_then(|agentic| agentic.agent.own_container("spec.generate.agentic.agent"));
    let agent_process = match agent_container {
        Some((at, container)) => process(objects, container, &at)?,
        None => process(objects, &Value::Null, "spec.generate.agentic.agent")?,
    };
    let plugin_process = match &spec.plugins {
        Some(plugins) => Some(process(objects, &plugins.own_container(), "spec.plugins")?),
        None => None,
    };
    let replies = pool
        .engine
        .as_ref()
        .and_then(|engine| engine.simulator.as_ref())
        .and_then(|simulator| simulator.replies.as_ref());
    let script = replies.and_then(|replies| replies.script.as_ref());
    let oracle = replies
        .and_then(|replies| replies.oracle.as_ref())
        .and_then(|oracle| oracle.dataset.as_ref());
    Ok(Inputs {
        dataset: finder.dataset(&spec.dataset)?,
        agent_code: agent_code
            .map(|code| finder.code("spec.generate.agentic.agent.function.code", code))
            .transpose()?,
        plugin_code: plugin_code
            .map(|code| finder.code("spec.plugins.code", code))
            .transpose()?,
        agent_process,
        plugin_process,
        engine_ca: engine_ca(&finder, &pool)?,
        script: match script.map(|script| (&script.inline, &script.config_map_key_ref)) {
            Some((Some(text), _)) => Some(text.clone().into_bytes()),
            Some((None, Some(reference))) => Some(finder.key(
                "spec.engine.simulator.replies.script.configMapKeyRef",
                reference,
            )?),
            Some((None, None)) | None => None,
        },
        oracle_dataset: oracle
            .map(|dataset| {
                finder.key(
                    "spec.engine.simulator.replies.oracle.dataset.configMap",
                    &dataset.config_map,
                )
            })
            .transpose()?,
        name: job.name_any(),
        namespace: namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
        spec,
        pool_name,
        pool,
    })
}

/// The CA of the engines behind https, where the pool names one.
fn engine_ca(finder: &Finder<'_>, pool: &SGLangPoolSpec) -> Result<Option<Vec<u8>>, InputError> {
    let tls = pool
        .external
        .as_ref()
        .and_then(|external| external.tls.as_ref());
    tls.map(|tls| {
        let field = "spec.external.tls.caConfigMapKeyRef";
        finder.key(field, &tls.ca_config_map_key_ref)
    })
    .transpose()
}

fn choose<'a>(manifests: &'a Manifests, name: Option<&str>) -> Result<&'a RolloutJob, InputError> {
    let names = || {
        manifests
            .jobs
            .iter()
            .map(|job| job.object.name_any())
            .collect()
    };
    match (name, manifests.jobs.as_slice()) {
        (_, []) => Err(InputError::NoJob),
        (None, [job]) => Ok(&job.object),
        (None, _) => Err(InputError::SeveralJobs { names: names() }),
        (Some(name), jobs) => jobs
            .iter()
            .map(|job| &job.object)
            .find(|job| job.name_any() == name)
            .ok_or_else(|| InputError::NoSuchJob {
                name: name.to_owned(),
                names: names(),
            }),
    }
}

fn process(objects: Objects<'_>, container: &Value, at: &str) -> Result<UserProcess, InputError> {
    let directory = container["workingDir"]
        .as_str()
        .filter(|path| !path.is_empty());
    let directory = directory.map(|path| {
        let found = Path::new(path).canonicalize();
        found
            .ok()
            .filter(|found| found.is_dir())
            .ok_or_else(|| InputError::NoWorkingDirectory {
                at: at.to_owned(),
                path: path.to_owned(),
            })
    });
    let environment = objects.environment(container, at)?;
    if let Some(directory) = directory.transpose()? {
        return Ok(UserProcess {
            environment,
            place: Place::Given(directory),
        });
    }
    let start = std::env::current_dir().map_err(InputError::Nowhere)?;
    Ok(UserProcess {
        environment: environment.meant_from(&start),
        place: Place::Own { start },
    })
}

/// The spec as JSON, with its defaults written out: what the driver gets.
pub(super) fn spec_value(spec: &RolloutJobSpec) -> Value {
    serde_json::to_value(spec).unwrap_or_default()
}
