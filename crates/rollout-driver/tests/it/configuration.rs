//! The configuration file: what is read, and what is refused with which words.

use rollout_driver::config::{DriverConfig, dataset_config, engine_config};
use rollout_driver::dataset::LabelRule;
use rollout_engine::{Granularity, Scoring, Surplus};
use serde_json::{Value, json};

use crate::rig::merge;

fn config(changes: &Value) -> Result<DriverConfig, String> {
    let mut config = json!({
        "version": 1,
        "job": {"name": "j", "namespace": "n", "uid": "u", "attempt": 1},
        "spec": {"rollout": {"batchSize": 4}, "generate": {"singleTurn": {}}, "dataset": {"inline": [{"prompt": "a"}]}},
        "ledger_dir": "/l", "output_dir": "/o", "router_url": "http://127.0.0.1:1",
    });
    merge(&mut config, changes);
    DriverConfig::parse(&config.to_string()).map_err(|error| error.to_string())
}

#[test]
fn refusals_name_the_field_and_what_to_do() {
    let cases = [
        (
            json!({"version": 2}),
            "version is 2, this driver reads version 1",
        ),
        (
            json!({"spec": {"sampling": {"logprobStartLen": 0}}}),
            "sampling.logprobStartLen: remove it",
        ),
        (
            json!({"spec": {"generate": {"singleTurn": null}}}),
            "set exactly one of singleTurn and agentic",
        ),
        (
            json!({"spec": {"generate": {"agentic": {}}}}),
            "set exactly one of singleTurn and agentic",
        ),
        (
            json!({"spec": {"generate": {"singleTurn": null, "agentic": {}}, "dataset": {"applyChatTemplate": true}}}),
            "an agent gets its prompt as messages",
        ),
        (
            json!({"spec": {"rollout": {"batchSize": 0}}}),
            "must be at least 1",
        ),
        (
            json!({"spec": {"rollout": {"batchSize": "four"}}}),
            "invalid type: string \"four\"",
        ),
        (
            json!({"timeouts": {"request_seconds": 1}}),
            "unknown field `request_seconds`",
        ),
        (
            json!({"spec": {"rollout": {"requestTimeoutSeconds": 0}}}),
            "rollout.requestTimeoutSeconds is 0: it must be from 1 to 86400",
        ),
        (
            json!({"spec": {"rollout": {"requestTimeoutSeconds": 86401}}}),
            "rollout.requestTimeoutSeconds is 86401",
        ),
        (
            json!({"control_token_file": "/nowhere/token"}),
            "cannot read /nowhere/token",
        ),
    ];
    for (changes, text) in cases {
        let error = config(&changes).expect_err(text);
        assert!(error.contains(text), "{error:?} does not say {text:?}");
    }
}

#[test]
fn fields_that_the_driver_does_not_need_are_left_alone() {
    let read = config(
        &json!({"spec": {"poolRef": {"name": "p"}, "novel": [1], "replay": {"routedExperts": false}}}),
    );
    assert!(read.is_ok(), "{read:?}");
}

#[test]
fn the_batch_loop_is_what_the_spec_says() {
    let read = config(&json!({"spec": {
        "rollout": {
            "steps": 3, "samplesPerPrompt": 8, "overSampling": {"batchSize": 6, "granularity": "Sample"},
            "partial": {"enabled": true}, "errorBudget": {"retriesPerGroup": 2, "retriesPerSample": 5, "badRows": 7},
            "concurrency": {"requestsPerEngine": 16},
        },
        "reward": {"type": "Plugin", "group": true},
        "output": {"includeAll": true},
        "teardown": {"drainSeconds": 7},
    }}))
    .unwrap();
    let engine = engine_config(&read, 100, 3);
    assert_eq!(
        (
            engine.steps,
            engine.target,
            engine.samples_per_prompt,
            engine.fetch
        ),
        (3, 4, 8, 6)
    );
    assert_eq!(engine.granularity, Granularity::Sample);
    assert_eq!(engine.scoring, Scoring::Group);
    assert_eq!(engine.surplus, Surplus::Write);
    assert!(engine.partial);
    assert_eq!(engine.max_in_flight, 48, "16 requests at each of 3 engines");
    let limits = &engine.limits;
    assert_eq!(
        (limits.group_tries, limits.sample_refills, limits.bad_rows),
        (3, 5, 7)
    );
    assert_eq!(
        engine.ladder.hook, None,
        "a job without agents never calls a hook"
    );
    assert_eq!(engine.ladder.drain.as_secs(), 7);
}

#[test]
fn without_oversampling_exactly_what_is_missing_is_taken() {
    let engine = engine_config(&config(&json!({})).unwrap(), 10, 1);
    assert_eq!(engine.fetch, 1);
    assert_eq!(engine.scoring, Scoring::None);
}

#[test]
fn the_data_set_requires_what_the_job_needs() {
    let math = config(&json!({"spec": {"reward": {"type": "Math"}}})).unwrap();
    let rules = dataset_config(&math.spec, None).unwrap().rules;
    assert_eq!(rules.label, LabelRule::TextOrNumber);
    assert!(!rules.require_messages);
    let agents =
        config(&json!({"spec": {"generate": {"singleTurn": null, "agentic": {}}}})).unwrap();
    let rules = dataset_config(&agents.spec, None).unwrap().rules;
    assert!(
        rules.require_messages,
        "a string prompt is refused for agents"
    );
    assert_eq!(rules.label, LabelRule::Optional);
    let slice = config(&json!({"spec": {"dataset": {"slice": "1:2"}}})).unwrap();
    let error = dataset_config(&slice.spec, None).unwrap_err().to_string();
    assert!(error.contains("spec.dataset.slice"), "{error}");
    let nothing = config(&json!({"spec": {"dataset": {"inline": null}}})).unwrap();
    assert!(dataset_config(&nothing.spec, None).is_err());
}

#[test]
fn engines_that_are_still_to_come_are_counted() {
    let in_flight = |expected: u32, known: u32| {
        let limits = json!({"rollout": {"concurrency": {"requestsPerEngine": 16}}});
        let read = config(&json!({"engines": expected, "spec": limits})).unwrap();
        engine_config(&read, 100, known).max_in_flight
    };
    assert_eq!(in_flight(8, 1), 128);
    assert_eq!(in_flight(2, 3), 48);
    assert_eq!(in_flight(0, 0), 16);
}
