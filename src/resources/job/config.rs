//! The settings of an attempt: what router, driver and agents read at their start.

use serde_json::{Map, Value, json};

use super::claims::CLAIM_SECRET;
use super::{JobInput, data, driver_settings};
use crate::resources::labels::Component;
use crate::resources::pool::{
    AGENTS_PORT, CONTROL_PORT, CONTROL_TOKEN, EngineList, SECRETS, engine_ca, engine_key,
    engine_list,
};
use crate::resources::volumes::Mounted;
use crate::resources::{Kind, Object, Refusal, names};

/// Port of the driver's state.
pub const STATUS_PORT: u16 = 8090;

/// Where the settings are mounted.
pub(super) const SETTINGS: &str = "/etc/rollout/settings";
/// The driver's.
pub(super) const DRIVER_FILE: &str = "driver.json";
/// The router's.
pub(super) const ROUTER_FILE: &str = "router.yaml";
/// The agents' `args`.
pub(super) const PARAMETERS_FILE: &str = "parameters.json";

/// The `ConfigMap`.
pub(super) fn settings(input: JobInput<'_>) -> Result<Object, Refusal> {
    let mut files = Map::new();
    let driver = driver_settings::of(input, &data::of(input));
    files.insert(DRIVER_FILE.to_owned(), json!(driver.to_string()));
    let router = router(input)?;
    let text = serde_yaml::to_string(&router).unwrap_or_else(|_| router.to_string());
    files.insert(ROUTER_FILE.to_owned(), json!(text));
    if let Some(agentic) = input.agents() {
        let parameters = json!(agentic.parameters).to_string();
        files.insert(PARAMETERS_FILE.to_owned(), json!(parameters));
    }
    let name = names::driver(&input.owner.name, input.attempt);
    let body = json!({"data": files});
    Ok(input.object(Kind::ConfigMap, name, Some(Component::Driver), body))
}

fn router(input: JobInput<'_>) -> Result<Value, Refusal> {
    let pool = input.pool;
    let mut settings = json!({
        "agentsListen": format!("0.0.0.0:{AGENTS_PORT}"),
        "controlListen": format!("127.0.0.1:{CONTROL_PORT}"),
        "controlTokenFile": format!("{SECRETS}/{CONTROL_TOKEN}"),
        "claimSecretFile": format!("{SECRETS}/{CLAIM_SECRET}"),
        "advertiseUrl": format!("http://{}:{AGENTS_PORT}", input.router_host()),
        "job": input.owner.name,
    });
    if let Some((_, file)) = engines_key(input)? {
        settings["engineKeyFile"] = json!(file);
    }
    if let Some((_, file)) = engines_ca(input)? {
        settings["engineCaFile"] = json!(file);
    }
    match engine_list(pool.name, pool.namespace, pool.spec, input.rendering) {
        EngineList::Service(service) => settings["engineService"] = json!(service),
        EngineList::Urls(urls) => settings["engines"] = json!(urls),
    }
    Ok(settings)
}

/// The key of the pool's engines. It does not leave the pool's namespace.
pub(super) fn engines_key(input: JobInput<'_>) -> Result<Option<(Mounted, String)>, Refusal> {
    let key = engine_key(input.pool.spec);
    if key.is_some() && input.pool.namespace != input.owner.namespace {
        return Err(Refusal::not_supported(
            "spec.poolRef.namespace",
            "a pool of another namespace whose engines ask for a key; use one without apiKeySecretRef",
        ));
    }
    Ok(key)
}

/// The CAs of the pool's engines, which are in a `ConfigMap` beside the pool.
pub(super) fn engines_ca(input: JobInput<'_>) -> Result<Option<(Mounted, String)>, Refusal> {
    let ca = engine_ca(input.pool.spec);
    if ca.is_some() && input.pool.namespace != input.owner.namespace {
        return Err(Refusal::not_supported(
            "spec.poolRef.namespace",
            "a pool of another namespace whose engines have a CA of their own; use a pool of the job's namespace",
        ));
    }
    Ok(ca)
}
