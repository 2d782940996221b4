//! Settings of simulated engines: the file that `simulate-engine --config` reads.

use serde_json::{Value, json};

use super::{PoolInput, tokenizer};
use crate::api::pool::{Engine, Replies, Simulator};
use crate::api::values::ConfigMapKeyRef;
use crate::resources::labels::Component;
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Kind, Object, Refusal, names};

/// Where the settings are.
const SETTINGS: &str = "/etc/rollout/simulator";
/// The file of the settings.
const FILE: &str = "config.json";
/// Where the prompts and labels are that the oracle knows.
const KNOWN: &str = "/etc/rollout/oracle";
/// Where the script is.
const SCRIPT: &str = "/etc/rollout/script";

/// The `ConfigMap`; none for real engines.
pub(super) fn settings(input: PoolInput<'_>, engine: &Engine) -> Result<Option<Object>, Refusal> {
    let Some(simulator) = &engine.simulator else {
        return Ok(None);
    };
    let owner = input.owner;
    let config = config(input, engine, simulator)?;
    let body = json!({"data": {FILE: config.to_string()}});
    let labels = input.labels(Some(Component::Engine));
    let name = names::simulator(&owner.name);
    let object = Object::new(Kind::ConfigMap, owner, name, labels, body);
    Ok(Some(object.owned_by(owner)))
}

/// Arguments after the sub-command.
pub(super) fn arguments() -> Vec<String> {
    vec![
        "simulate-engine".to_owned(),
        format!("--config={SETTINGS}/{FILE}"),
        "--host=0.0.0.0".to_owned(),
        format!("--port={}", super::ENGINE_PORT),
    ]
}

/// What is mounted.
pub(super) fn mounts(pool: &str, simulator: &Simulator) -> Vec<Mounted> {
    let name = names::simulator(pool);
    let mut mounts = vec![Mounted::read_only(
        "settings",
        SETTINGS,
        volumes::config_map_keys(&name, &[FILE]),
    )];
    let replies = simulator.replies.as_ref();
    for (volume, path, reference) in [
        ("oracle", KNOWN, replies.and_then(known)),
        ("script", SCRIPT, replies.and_then(script)),
    ] {
        if let Some(reference) = reference {
            let source = volumes::config_map_keys(&reference.name, &[&reference.key]);
            mounts.push(Mounted::read_only(volume, path, source));
        }
    }
    mounts
}

fn known(replies: &Replies) -> Option<&ConfigMapKeyRef> {
    let dataset = replies.oracle.as_ref()?.dataset.as_ref()?;
    Some(&dataset.config_map)
}

fn script(replies: &Replies) -> Option<&ConfigMapKeyRef> {
    replies.script.as_ref()?.config_map_key_ref.as_ref()
}

fn config(input: PoolInput<'_>, engine: &Engine, simulator: &Simulator) -> Result<Value, Refusal> {
    let mut config = json!(simulator);
    if let Some(replies) = &simulator.replies {
        let Replies {
            oracle,
            script: script_reply,
            lengths: _,
        } = replies;
        if let Some(oracle) = oracle {
            let Some(dataset) = &oracle.dataset else {
                return Err(Refusal::invalid(
                    "spec.engine.simulator.replies.oracle.dataset",
                    "a pool does not know which job will use it: name the ConfigMap with prompts and labels",
                ));
            };
            config["replies"]["oracle"]["dataset"] = json!({
                "path": format!("{KNOWN}/{}", dataset.config_map.key),
                "promptKey": dataset.prompt_key.as_deref().unwrap_or("prompt"),
                "labelKey": dataset.label_key.as_deref().unwrap_or("label"),
            });
        }
        if let Some(reference) = script_reply
            .as_ref()
            .and_then(|script| script.config_map_key_ref.as_ref())
        {
            config["replies"]["script"] = json!({"path": format!("{SCRIPT}/{}", reference.key)});
        }
    }
    let model = input.spec.model.as_ref();
    let path = model.map_or("simulated", |model| model.path.as_str());
    let name = model.and_then(|model| model.served_name.as_deref());
    let mut server = json!({"modelPath": path, "servedModelName": name.unwrap_or("default")});
    if let Some((_, directory)) = tokenizer::mounted(input.spec) {
        server["tokenizer"] = json!(directory);
    }
    if let Some(length) = engine.context_length {
        server["contextLength"] = json!(length);
    }
    if let Some(parser) = &engine.tool_call_parser {
        server["toolCallParser"] = json!(parser);
    }
    if let Some(parser) = &engine.reasoning_parser {
        server["reasoningParser"] = json!(parser);
    }
    config["server"] = server;
    Ok(config)
}
