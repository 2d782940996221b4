//! `driver.json`: what the driver reads at its start (docs/protocol.md section 5).

use serde_json::{Value, json};

use super::config::STATUS_PORT;
use super::data::Data;
use super::{JobInput, plugins};
use crate::api::pool::SGLangPoolSpec;
use crate::resources::pool::{CONTROL_PORT, CONTROL_TOKEN, SECRETS};

/// Where the kubelet reads a container's last word.
pub(super) const LAST_WORD: &str = "/dev/termination-log";

pub(super) fn of(input: JobInput<'_>, data: &Data) -> Value {
    let owner = input.owner;
    let plugin_socket = input.spec.plugins.as_ref().map(|_| plugins::SOCKET);
    let mut settings = json!({
        "version": 1,
        "job": {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid, "attempt": input.attempt},
        "spec": spec(input),
        "ledger_dir": data.ledger,
        "output_dir": data.output,
        "router_url": format!("http://127.0.0.1:{CONTROL_PORT}"),
        "control_token_file": format!("{SECRETS}/{CONTROL_TOKEN}"),
        "plugin_socket": plugin_socket,
        "tokenizer": data.tokenizer,
        "tokenizer_url": data.tokenizer_url,
        "status_listen": format!("0.0.0.0:{STATUS_PORT}"),
        "termination_message_path": LAST_WORD,
    });
    if let Some(path) = &data.dataset {
        settings["dataset_path"] = json!(path);
    }
    if let Some(directory) = &data.dataset_credentials {
        settings["dataset_credentials_dir"] = json!(directory);
    }
    if let Some(engines) = engines(input.pool.spec) {
        settings["engines"] = json!(engines);
    }
    settings
}

/// How many engines the pool will have: the router may know fewer of them when the driver starts. None: who runs them decides.
fn engines(pool: &SGLangPoolSpec) -> Option<usize> {
    match &pool.external {
        None => usize::try_from(pool.replicas).ok(),
        Some(external) => Some(external.urls.len()).filter(|urls| *urls > 0),
    }
}

/// The job's spec, defaults written out, without what only the controller reads: a `ConfigMap` holds a megabyte.
fn spec(input: JobInput<'_>) -> Value {
    let mut spec = json!(input.spec);
    if let Some(members) = spec.as_object_mut() {
        for field in ["pool", "driver"] {
            members.shift_remove(field);
        }
    }
    for (parent, field) in [
        ("/plugins", "container"),
        ("/generate/agentic/agent/function", "template"),
        ("/generate/agentic/agent/container", "template"),
        ("/generate/agentic/sandbox", "template"),
    ] {
        if let Some(members) = spec.pointer_mut(parent).and_then(Value::as_object_mut) {
            members.shift_remove(field);
        }
    }
    spec
}
