//! Every flag that a Pod is given is one that the program knows.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::{everything, rendering};

/// Sub-commands with their flags, as containers run them.
fn used() -> BTreeMap<Vec<String>, BTreeSet<String>> {
    let (pools, cases) = everything();
    let mut objects: Vec<_> = cases.iter().flat_map(super::Case::all).collect();
    let pools = pools.iter().filter_map(|pool| pool.pool_objects().ok());
    objects.extend(pools.flat_map(super::pool::PoolObjects::into_objects));
    let mut used: BTreeMap<Vec<String>, BTreeSet<String>> = BTreeMap::new();
    for object in &objects {
        for spec in [
            &object.value["spec"],
            &object.value["spec"]["template"]["spec"],
        ] {
            for list in ["initContainers", "containers"] {
                for container in spec[list].as_array().into_iter().flatten() {
                    add(container, &mut used);
                }
            }
        }
    }
    used
}

fn add(container: &Value, used: &mut BTreeMap<Vec<String>, BTreeSet<String>>) {
    let is_ours = container["image"] == rendering().image
        || container["command"][0] == "/rollout/rollout-operator";
    if !is_ours {
        return;
    }
    let arguments: Vec<String> = super::arguments(container)
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect();
    let length = if arguments[0] == "agent" { 2 } else { 1 };
    let flags = arguments[length..]
        .iter()
        .take_while(|argument| *argument != "--");
    let flags = flags.filter(|argument| argument.starts_with("--"));
    let flags = flags.map(|flag| flag.split('=').next().unwrap().to_owned());
    used.entry(arguments[..length].to_vec())
        .or_default()
        .extend(flags);
}

#[test]
fn the_program_knows_every_flag() {
    let used = used();
    let commands: Vec<String> = used.keys().map(|words| words.join(" ")).collect();
    assert_eq!(
        commands,
        [
            "agent exec",
            "agent install",
            "agent launch",
            "driver",
            "engine-sidecar",
            "plugins",
            "router",
            "simulate-engine",
            "survey",
        ]
    );
    for (words, flags) in used {
        let output = Command::new(env!("CARGO_BIN_EXE_rollout-operator"))
            .args(&words)
            .arg("--help")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let known: BTreeSet<&str> = help
            .split(|character: char| !(character.is_ascii_alphanumeric() || character == '-'))
            .collect();
        for flag in &flags {
            assert!(
                known.contains(flag.as_str()),
                "{words:?} does not know {flag}:\n{help}"
            );
        }
    }
}
