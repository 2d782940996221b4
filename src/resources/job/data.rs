//! What the driver reads and writes: data set, tokenizer, ledger, output.

use serde_json::{Value, json};

use super::JobInput;
use crate::resources::pool::{named_files, served_by_engines, tokenizer_url};
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Refusal, names};

const DATASET: &str = "/data/dataset";
/// Where the credentials of a data set are that is behind a URL.
const CREDENTIALS: &str = "/etc/rollout/dataset-credentials";
const TOKENIZER: &str = "/data/tokenizer";
const LEDGER: &str = "/data/ledger";
const OUTPUT: &str = "/data/output";

/// Volumes of the driver's container, and the paths in them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Data {
    pub(super) mounts: Vec<Mounted>,
    /// None: the rows are in the spec.
    pub(super) dataset: Option<String>,
    /// Where what its server is shown is mounted.
    pub(super) dataset_credentials: Option<String>,
    /// `builtin`, or a directory; null: see the next one.
    pub(super) tokenizer: Value,
    /// Where the engines' sidecars serve its files; null: the engine tokenizes.
    pub(super) tokenizer_url: Value,
    pub(super) ledger: String,
    pub(super) output: String,
}

/// Whether the driver can have what it needs.
///
/// # Errors
/// The tokenizer's files are in another namespace, and the driver renders prompts with them.
pub(super) fn check(input: JobInput<'_>) -> Result<(), Refusal> {
    let pool = input.pool;
    let is_far = pool.namespace != input.owner.namespace;
    let is_served = served_by_engines(pool.spec);
    if named_files(pool.spec).is_some() && is_far && !is_served && is_rendered(input) {
        return Err(Refusal::not_supported(
            "spec.poolRef.namespace",
            "tokenizer files of a pool of another namespace; use a pool of the job's own namespace, or one without tokenizer",
        ));
    }
    Ok(())
}

pub(super) fn of(input: JobInput<'_>) -> Data {
    let mut mounts = Vec::new();
    let dataset = dataset(input, &mut mounts);
    let dataset_credentials = credentials(input, &mut mounts);
    let tokens = tokens(input, &mut mounts);
    let (tokenizer, tokenizer_url) = match tokens {
        Tokens::At(place) => (json!(place), Value::Null),
        Tokens::Served(url) => (Value::Null, json!(url)),
        Tokens::Engines => (Value::Null, Value::Null),
    };
    let ledger = match &input.spec.driver.ledger {
        None => volumes::empty_dir(),
        Some(_) => volumes::claim(&names::ledger(&input.owner.name)),
    };
    mounts.push(Mounted::writable("ledger", LEDGER, ledger));
    let output = output(input, &mut mounts);
    // SQLite sorts what does not fit into its memory in files.
    mounts.push(Mounted::writable("tmp", "/tmp", volumes::empty_dir()));
    Data {
        mounts,
        dataset,
        dataset_credentials,
        tokenizer,
        tokenizer_url,
        ledger: LEDGER.to_owned(),
        output,
    }
}

fn dataset(input: JobInput<'_>, mounts: &mut Vec<Mounted>) -> Option<String> {
    let dataset = &input.spec.dataset;
    if let Some(rows) = &dataset.config_map {
        let source = volumes::config_map_keys(&rows.name, &[&rows.key]);
        mounts.push(Mounted::read_only("dataset", DATASET, source));
        return Some(format!("{DATASET}/{}", rows.key));
    }
    if let Some(file) = &dataset.persistent_volume_claim {
        let source = volumes::read_only_claim(&file.claim_name);
        mounts.push(Mounted::read_only("dataset", DATASET, source));
        return Some(volumes::below(DATASET, file.path.as_deref()));
    }
    // A file of the driver's Pod: its template mounts it. What is fetched goes beside the ledger.
    let url = dataset.url.as_deref()?;
    url.strip_prefix("file://").map(str::to_owned)
}

/// Those of a URL that the driver fetches.
fn credentials(input: JobInput<'_>, mounts: &mut Vec<Mounted>) -> Option<String> {
    let dataset = &input.spec.dataset;
    let secret = dataset
        .secret_ref
        .as_ref()
        .filter(|_| dataset.is_fetched())?;
    let source = volumes::secret(&secret.name);
    mounts.push(Mounted::read_only(
        "dataset-credentials",
        CREDENTIALS,
        source,
    ));
    Some(CREDENTIALS.to_owned())
}

/// Who tokenizes prompts.
enum Tokens {
    /// The driver, with files that are in its Pod, or built in.
    At(String),
    /// The driver, with files that the engines' sidecars serve below this URL.
    Served(String),
    /// The engines.
    Engines,
}

/// Files of a pool in another namespace cannot be mounted.
fn tokens(input: JobInput<'_>, mounts: &mut Vec<Mounted>) -> Tokens {
    let pool = input.pool;
    let is_near = pool.namespace == input.owner.namespace;
    if let Some(files) = named_files(pool.spec).filter(|_| is_near) {
        if let Some(files) = &files.config_map {
            let source = volumes::config_map(&files.name);
            mounts.push(Mounted::read_only("tokenizer", TOKENIZER, source));
            return Tokens::At(TOKENIZER.to_owned());
        }
        if let Some(place) = &files.persistent_volume_claim {
            let source = volumes::read_only_claim(&place.claim_name);
            mounts.push(Mounted::read_only("tokenizer", TOKENIZER, source));
            return Tokens::At(volumes::below(TOKENIZER, place.path.as_deref()));
        }
    }
    if served_by_engines(pool.spec) && is_rendered(input) {
        return Tokens::Served(tokenizer_url(pool.name, pool.namespace, input.rendering));
    }
    match (&pool.spec.engine, named_files(pool.spec)) {
        (Some(engine), None) if engine.simulator.is_some() => Tokens::At("builtin".to_owned()),
        _ => Tokens::Engines,
    }
}

/// Whether the driver makes prompts of rows; an agent's turns are the engines' to tokenize.
fn is_rendered(input: JobInput<'_>) -> bool {
    input.spec.generate.single_turn.is_some()
}

/// Each `rerunId` writes a folder of its own.
fn output(input: JobInput<'_>, mounts: &mut Vec<Mounted>) -> String {
    let output = input.spec.output.clone().unwrap_or_default();
    let url = output.url.as_deref();
    let directory = if let Some(directory) = url.and_then(|url| url.strip_prefix("file://")) {
        // A directory of the driver's Pod: its template mounts it.
        directory.trim_end_matches('/').to_owned()
    } else {
        let place = output.persistent_volume_claim.as_ref();
        let source = place.map_or_else(volumes::empty_dir, |place| {
            volumes::claim(&place.claim_name)
        });
        mounts.push(Mounted::writable("output", OUTPUT, source));
        volumes::below(OUTPUT, place.and_then(|place| place.path.as_deref()))
    };
    volumes::below(&directory, Some(&input.spec.rerun_id))
}
