//! Everything below `spec` that rules in CEL cannot look into: pod templates, environment sources, network peers, engine flags.

use serde_json::{Map, Value};

use super::flags;
use super::pod::{self, Trust};
use super::process;
use super::schemaless;
use super::violation::Violation;
use crate::api::job::{Agent, Agentic, Plugins, RolloutJobSpec};
use crate::api::manifest::path;
use crate::api::pool::{DisaggregationSide, Engine, SGLangPoolSpec};
use crate::api::values::{EgressRule, EnvVar, NetworkPeer, Template};

/// Checks of a pool.
pub(super) fn pool(spec: &SGLangPoolSpec) -> Vec<Violation> {
    pool_at(spec, "spec")
}

fn pool_at(spec: &SGLangPoolSpec, at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Some(engine) = &spec.engine {
        found.extend(check_engine(engine, &format!("{at}.engine")));
    }
    if let Some(template) = spec
        .router
        .as_ref()
        .and_then(|router| router.template.as_ref())
    {
        found.extend(pod::check(
            template,
            Trust::Ours,
            &format!("{at}.router.template"),
        ));
    }
    if let Some(policy) = &spec.network_policy {
        found.extend(peers(
            &policy.allow_from,
            &format!("{at}.networkPolicy.allowFrom"),
        ));
    }
    found
}

fn check_engine(engine: &Engine, at: &str) -> Vec<Violation> {
    let mut found = owned_flags(&engine.extra_args, &format!("{at}.extraArgs"));
    found.extend(env(&engine.env, &format!("{at}.env")));
    if let Some(template) = &engine.template {
        found.extend(pod::check(template, Trust::Ours, &format!("{at}.template")));
    }
    if let Some(sides) = &engine.disaggregation {
        found.extend(check_side(
            &sides.prefill,
            &format!("{at}.disaggregation.prefill"),
        ));
        found.extend(check_side(
            &sides.decode,
            &format!("{at}.disaggregation.decode"),
        ));
    }
    found
}

fn check_side(side: &DisaggregationSide, at: &str) -> Vec<Violation> {
    let mut found = owned_flags(&side.extra_args, &format!("{at}.extraArgs"));
    found.extend(env(&side.env, &format!("{at}.env")));
    if let Some(template) = &side.template {
        found.extend(pod::check(template, Trust::Ours, &format!("{at}.template")));
    }
    found
}

fn owned_flags(arguments: &[String], at: &str) -> Vec<Violation> {
    arguments
        .iter()
        .enumerate()
        .filter_map(|(position, argument)| {
            let instead = flags::instead_of(argument)?;
            let message = format!("{argument} is the operator's to set: remove it; {instead}");
            Some(Violation::error(path::index(at, position), message))
        })
        .collect()
}

/// A file in place of a function: it has the form of an import path.
fn files(spec: &RolloutJobSpec) -> Vec<Violation> {
    let agentic = spec.generate.agentic.as_ref();
    let function = agentic.and_then(|agentic| agentic.agent.function.as_ref());
    let plugin = spec.reward.plugin.as_ref();
    let paths = [
        (
            "spec.generate.agentic.agent.function.path",
            function.map(|function| &function.path),
        ),
        ("spec.reward.plugin.path", plugin.map(|plugin| &plugin.path)),
    ];
    let files = paths.into_iter().filter_map(|(at, path)| {
        let module = path?.0.strip_suffix(".py")?;
        let message = format!("{module}.py is a file: write module.function, as in {module}.run");
        Some(Violation::error(at, message))
    });
    files.collect()
}

/// Checks of a job.
pub(super) fn job(spec: &RolloutJobSpec) -> Vec<Violation> {
    let mut found = files(spec);
    if let Some(pool) = &spec.pool {
        found.extend(pool_at(pool, "spec.pool"));
    }
    if let Some(agentic) = &spec.generate.agentic {
        found.extend(check_agentic(agentic, "spec.generate.agentic"));
    }
    if let Some(plugins) = &spec.plugins {
        found.extend(check_plugins(plugins, "spec.plugins"));
    }
    if let Some(verifier) = &spec.reward.verifier {
        let at = "spec.reward.verifier.template";
        found.extend(pod::check(&verifier.template, Trust::Users, at));
        found.extend(pod::has_container(
            &verifier.template,
            "verifier",
            &["image"],
            at,
        ));
    }
    if let Some(template) = &spec.driver.template {
        found.extend(pod::check(template, Trust::Ours, "spec.driver.template"));
    }
    if let Some(ledger) = &spec.driver.ledger {
        let claim = Value::Object(ledger.volume_claim_template.0.clone());
        found.extend(schemaless::claim_template(
            &claim,
            "spec.driver.ledger.volumeClaimTemplate",
        ));
    }
    found
}

fn check_agentic(agentic: &Agentic, at: &str) -> Vec<Violation> {
    let mut found = check_agent(&agentic.agent, &format!("{at}.agent"));
    if let Some(template) = agentic
        .sandbox
        .as_ref()
        .and_then(|sandbox| sandbox.template.as_ref())
    {
        let at = format!("{at}.sandbox.template");
        found.extend(pod::check(template, Trust::Users, &at));
        found.extend(pod::lacks_containers(
            template,
            &["agent", "session", "shim"],
            &at,
        ));
    }
    if let Some(policy) = &agentic.network_policy {
        found.extend(egress(
            &policy.egress,
            &format!("{at}.networkPolicy.egress"),
        ));
        found.extend(peers(
            &policy.allow_from,
            &format!("{at}.networkPolicy.allowFrom"),
        ));
    }
    found
}

fn check_agent(agent: &Agent, at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Some(template) = agent
        .function
        .as_ref()
        .and_then(|function| function.template.as_ref())
    {
        let at = format!("{at}.function.template");
        found.extend(pod::check(template, Trust::Users, &at));
        found.extend(pod::lacks_containers(template, &["session", "shim"], &at));
    }
    if let Some(container) = &agent.container {
        let at = format!("{at}.container.template");
        found.extend(pod::check(&container.template, Trust::Users, &at));
        found.extend(pod::lacks_containers(
            &container.template,
            &["session", "shim"],
            &at,
        ));
        found.extend(pod::has_container(
            &container.template,
            "agent",
            &["image", "command"],
            &at,
        ));
    }
    found
}

fn check_plugins(plugins: &Plugins, at: &str) -> Vec<Violation> {
    let mut found = env(&plugins.env, &format!("{at}.env"));
    if let Some(container) = &plugins.container {
        let at = format!("{at}.container");
        let wrong = schemaless::container(&container.0, &at);
        let fits = !wrong.iter().any(Violation::is_error);
        found.extend(wrong);
        if fits {
            found.extend(process::container(&Value::Object(container.0.clone()), &at));
        }
    }
    found
}

fn env(variables: &[EnvVar], at: &str) -> Vec<Violation> {
    let mut found = process::variables(variables, at);
    let sources = variables
        .iter()
        .enumerate()
        .filter_map(|(position, variable)| Some((position, variable.value_from.as_ref()?)))
        .flat_map(|(position, source)| {
            let at = format!("{at}[{position}].valueFrom");
            schemaless::env_source(&Value::Object(source.0.clone()), &at)
        });
    found.extend(sources);
    found
}

fn egress(rules: &[EgressRule], at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (position, rule) in rules.iter().enumerate() {
        for (number, port) in rule.ports.iter().enumerate() {
            let at = format!("{at}[{position}].ports[{number}]");
            found.extend(schemaless::network_port(
                &Value::Object(port.0.clone()),
                &at,
            ));
        }
        found.extend(peers(&rule.to, &format!("{at}[{position}].to")));
    }
    found
}

fn peers(peers: &[NetworkPeer], at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (position, peer) in peers.iter().enumerate() {
        let at = path::index(at, position);
        let NetworkPeer {
            pod_selector,
            namespace_selector,
            ip_block,
        } = peer;
        for (name, selector) in [
            ("podSelector", pod_selector),
            ("namespaceSelector", namespace_selector),
        ] {
            found.extend(object(
                selector.as_ref(),
                &format!("{at}.{name}"),
                schemaless::label_selector,
            ));
        }
        found.extend(object(
            ip_block.as_ref(),
            &format!("{at}.ipBlock"),
            schemaless::ip_block,
        ));
        if ip_block.is_some() && (pod_selector.is_some() || namespace_selector.is_some()) {
            found.push(Violation::error(at, "set ipBlock, or selectors, not both"));
        } else if ip_block.is_none() && pod_selector.is_none() && namespace_selector.is_none() {
            found.push(Violation::error(
                at,
                "is empty: set podSelector, namespaceSelector or ipBlock",
            ));
        }
    }
    found
}

fn object(
    value: Option<&Template>,
    at: &str,
    check: fn(&Value, &str) -> Vec<Violation>,
) -> Vec<Violation> {
    let empty = Map::new();
    match value {
        Some(value) if value.0 == empty => Vec::new(),
        Some(value) => check(&Value::Object(value.0.clone()), at),
        None => Vec::new(),
    }
}
