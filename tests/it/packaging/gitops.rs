//! What tools for Git make of pools and jobs: Argo CD's health checks by a real Lua, Flux's expressions by a real CEL.

use std::sync::Arc;

use cel::{Context, Program, Value as Cel};
use mlua::{Lua, LuaSerdeExt, StdLib};
use rollout_operator::api::conditions::{reasons, types};
use serde::Deserialize;
use serde_json::Value;

use super::yaml;

const GROUP: &str = "rollout-operator.dev";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    object: Value,
    argo: Health,
    flux: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Health {
    status: String,
    message: String,
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> =
        serde_json::from_value(yaml("tests/fixtures/gitops/statuses.yaml")).unwrap();
    assert!(!cases.is_empty());
    cases
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

/// As Argo CD runs it: a Lua 5.1 without any library but those that cannot reach outside.
fn argo_health(object: &Value) -> Health {
    let settings = yaml("manifests/argocd/argocd-cm.yaml");
    let key = format!("resource.customizations.health.{GROUP}_{}", kind(object));
    let script = settings["data"][&key].as_str().unwrap();
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING, mlua::LuaOptions::default()).unwrap();
    let object = lua.to_value(object).unwrap();
    lua.globals().set("obj", object).unwrap();
    let health = lua.load(script).eval().unwrap();
    lua.from_value(health).unwrap()
}

/// As Flux evaluates them: deletion and generation first, then what failed, then what is current.
fn flux_state(object: &Value) -> &'static str {
    let metadata = &object["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return "deleted";
    }
    // The definitions give every object a status, and in it -1.
    if object["status"].is_null()
        || object["status"]["observedGeneration"] != metadata["generation"]
    {
        return "in progress";
    }
    let kustomization = yaml("manifests/flux/kustomization.yaml");
    let checks = kustomization["spec"]["healthCheckExprs"]
        .as_array()
        .unwrap();
    let check = checks
        .iter()
        .find(|check| check["kind"] == object["kind"])
        .unwrap();
    assert_eq!(check["apiVersion"], format!("{GROUP}/v1alpha1"));
    let holds = |rule: &str| {
        let program = Program::compile(check[rule].as_str().unwrap()).unwrap();
        let mut context = Context::default();
        for (field, value) in object.as_object().unwrap() {
            context.add_variable(field.as_str(), value).unwrap();
        }
        match program.execute(&context).unwrap() {
            Cel::Bool(holds) => holds,
            other => panic!("{rule} of {} gives {other:?}", kind(object)),
        }
    };
    if holds("failed") {
        "failed"
    } else if holds("current") {
        "current"
    } else {
        "in progress"
    }
}

#[test]
fn argo_cd_tells_what_objects_say() {
    for case in cases() {
        assert_eq!(argo_health(&case.object), case.argo, "{}", case.name);
    }
}

#[test]
fn flux_tells_what_objects_say() {
    for case in cases() {
        assert_eq!(flux_state(&case.object), case.flux, "{}", case.name);
    }
}

/// A name in these scripts that the operator never writes would be silently false for ever.
#[test]
fn the_words_are_those_of_the_operator() {
    for case in cases() {
        let known = match kind(&case.object) {
            "SGLangPool" => types::POOL,
            "RolloutJob" => types::JOB,
            other => panic!("{other}"),
        };
        let conditions = case.object["status"]["conditions"].as_array();
        for condition in conditions.into_iter().flatten() {
            let word = |field: &str| condition[field].as_str().unwrap().to_owned();
            assert!(
                known.contains(&word("type").as_str()),
                "{}: {condition}",
                case.name
            );
            assert!(
                reasons::ALL.contains(&word("reason").as_str()),
                "{}: {condition}",
                case.name
            );
        }
    }
    let scripts = super::text("manifests/argocd/argocd-cm.yaml");
    let quoted = regex::Regex::new(r#"(?:holds|claim)\("(\w+)"\)"#).unwrap();
    let mut asked: Vec<Arc<str>> = quoted
        .captures_iter(&scripts)
        .map(|found| found[1].into())
        .collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 4, "{asked:?}");
    for word in asked {
        assert!(
            types::POOL.contains(&&*word) || types::JOB.contains(&&*word),
            "{word}"
        );
    }
}
