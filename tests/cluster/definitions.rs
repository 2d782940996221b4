//! The API server says what the offline checks say: it refuses the same objects with the same words, and fills in the same defaults.

use std::collections::BTreeSet;

use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use rollout_operator::api::validate::{self, Violation};
use rollout_operator::api::{crd, meta};
use serde_json::Value;

use crate::api::{client, dynamic, namespace, objects};
use crate::manifests;

/// Where, and what is said.
type Verdict = BTreeSet<(String, String)>;

/// What the rules of both definitions say.
fn messages() -> BTreeSet<String> {
    fn collect(schema: &Value, messages: &mut BTreeSet<String>) {
        match schema {
            Value::Object(fields) => {
                for rule in fields
                    .get("x-kubernetes-validations")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    messages.extend(rule["message"].as_str().map(str::to_owned));
                }
                for field in fields.values() {
                    collect(field, messages);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, messages)),
            _ => {}
        }
    }
    let mut messages = BTreeSet::new();
    for (_, definition) in crd::all() {
        collect(crd::schema(&definition), &mut messages);
    }
    messages
}

/// What the offline checks say by rules of the definitions.
fn offline(violations: &[Violation], messages: &BTreeSet<String>) -> Verdict {
    violations
        .iter()
        .filter(|violation| messages.contains(&violation.message))
        .map(|violation| (violation.path.clone(), violation.message.clone()))
        .collect()
}

/// What the API server says by the definitions. Rules' words come after the value that it shows. What it says of every object's name is
/// not ours.
fn refusal(error: &kube::Error, messages: &BTreeSet<String>) -> Verdict {
    let kube::Error::Api(status) = error else {
        panic!("{error}");
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| cause.field != "metadata.name")
        .map(|cause| {
            let said = messages
                .iter()
                .filter(|message| cause.message.ends_with(message.as_str()))
                .max_by_key(|message| message.len());
            let said = said.unwrap_or(&cause.message);
            // The object as a whole.
            let field = cause.field.replace("<nil>", "");
            (field, said.clone())
        })
        .collect()
}

/// With numbers as the API server writes them: 1 for 1.0.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => Value::from(format!("{float}")),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), plain(field)))
            .collect(),
        _ => value.clone(),
    }
}

fn of_kind(client: &Client, namespace: &str, object: &Value) -> Api<DynamicObject> {
    objects(client, namespace, object["kind"].as_str().unwrap())
}

fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

#[tokio::test]
async fn bad_objects_are_refused_with_the_words_of_the_offline_checks() {
    let client = client().await;
    let namespace = namespace(&client, "bad").await;
    let messages = messages();
    let mut compared = 0;
    let mut different = Vec::new();
    for object in manifests::objects("bad") {
        let name = &object["metadata"]["name"];
        let expected = offline(&validate::validate(&object), &messages);
        let answer = of_kind(&client, &namespace, &object)
            .create(&dry_run(), &dynamic(&object))
            .await;
        let error = answer.expect_err(&format!("{name} was taken"));
        let said = refusal(&error, &messages);
        if said != expected {
            different.push(format!(
                "{name}\n  the server: {said:?}\n  offline: {expected:?}"
            ));
        }
        compared += expected.len();
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(compared > 90, "only {compared} verdicts were compared");
}

#[tokio::test]
async fn good_objects_are_taken_with_the_same_defaults() {
    let client = client().await;
    let namespace = namespace(&client, "good").await;
    let mut compared = 0;
    for object in manifests::objects("good") {
        if object["apiVersion"] != meta::API_VERSION {
            continue;
        }
        let stored = of_kind(&client, &namespace, &object)
            .create(&dry_run(), &dynamic(&object))
            .await
            .unwrap();
        let expected = validate::with_defaults(&object);
        let name = &object["metadata"]["name"];
        assert_eq!(
            plain(&stored.data["spec"]),
            plain(&expected["spec"]),
            "{name}"
        );
        compared += 1;
    }
    assert!(compared > 4, "only {compared} objects were compared");
}

#[tokio::test]
async fn edits_are_refused_with_the_words_of_the_offline_checks_or_taken() {
    let client = client().await;
    let messages = messages();
    let mut compared = 0;
    for (number, change) in manifests::changes().into_iter().enumerate() {
        let namespace = namespace(&client, &format!("edit-{number}")).await;
        let api = of_kind(&client, &namespace, &change.old);
        let mut stored = api
            .create(&PostParams::default(), &dynamic(&change.old))
            .await
            .unwrap();
        if !change.old["status"].is_null() {
            stored.data["status"] = change.old["status"].clone();
            let name = stored.metadata.name.clone().unwrap();
            stored = api
                .replace_status(&name, &PostParams::default(), &stored)
                .await
                .unwrap();
        }
        let mut edited = stored.clone();
        edited.data["spec"] = change.new["spec"].clone();
        let name = stored.metadata.name.clone().unwrap();
        let answer = api.replace(&name, &dry_run(), &edited).await;
        let violations = validate::validate_update(&change.new, &change.old);
        let expected = offline(&violations, &messages);
        let said = match &answer {
            Ok(_) => Verdict::new(),
            Err(error) => refusal(error, &messages),
        };
        assert_eq!(said, expected, "{}: {}", change.file, change.patch);
        compared += 1;
    }
    assert!(compared > 20, "only {compared} edits were compared");
}
