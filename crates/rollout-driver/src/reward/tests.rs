//! Rewards as a job names them.

use super::*;
use crate::plugins::PluginClient;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

fn sample(index: i64, response: &str, label: Value) -> Sample {
    Sample {
        index: Some(index),
        response: response.into(),
        label,
        ..Sample::default()
    }
}

fn rewards(model: RewardModel, key: &str) -> Rewards {
    Rewards {
        model,
        key: key.into(),
    }
}

fn texts(results: &[Result<Value, RewardError>]) -> String {
    let texts: Vec<_> = results
        .iter()
        .map(|result| match result {
            Ok(reward) => reward.to_string(),
            Err(error) => format!("{}: {error}", error.label()),
        })
        .collect();
    texts.join("\n")
}

#[tokio::test]
async fn no_model_leaves_the_reward_null() {
    let scored = rewards(RewardModel::None, "")
        .score(&[sample(0, "", Value::Null)])
        .await;
    assert_eq!(texts(&scored), "null");
}

#[tokio::test]
async fn math_grades_each_sample_on_its_own() {
    let samples = [
        sample(0, r"\boxed{4}", json!("4")),
        sample(1, r"\boxed{5}", json!(4)),
        sample(2, r"four", json!("4")),
        sample(3, r"\boxed{0.5}", json!(0.5)),
        sample(4, r"\boxed{4}", Value::Null),
        sample(5, r"\boxed{4}", json!(" ")),
        sample(6, r"\boxed{4}", json!(["4"])),
        sample(7, r"\boxed{4}", json!(r"\boxed{4")),
    ];
    let scored = rewards(RewardModel::Math, "").score(&samples).await;
    insta::assert_snapshot!(texts(&scored), @r#"
    1
    0
    0
    1
    label: the label of sample 4 is null, expected a text or a number
    label: the label of sample 5 is the text " ", expected a text that is not blank
    label: the label of sample 6 is the list ["4"], expected a text or a number
    label: the label of sample 7 is the text "\\boxed{4", expected an answer: its \boxed does not close
    "#);
}

#[tokio::test]
async fn an_agent_reports_its_own_reward() {
    let returned = |reward: Value| {
        let mut sample = sample(8, "", Value::Null);
        sample.metadata.insert("reward".into(), reward);
        sample
    };
    let collected = Sample {
        reward: json!(0.25),
        ..returned(json!(1))
    };
    let samples = [
        returned(json!(1)),
        returned(json!(-0.5)),
        collected,
        sample(3, "", Value::Null),
        returned(Value::Null),
        returned(json!("0.5")),
        returned(json!(true)),
        returned(json!([1.0])),
        returned(json!({"score": 1.0})),
    ];
    let scored = rewards(RewardModel::Agent, "").score(&samples).await;
    insta::assert_snapshot!(texts(&scored), @r#"
    1
    -0.5
    0.25
    missing: the agent of sample 3 returned no reward: return {"reward": <number>}, or choose another reward.type
    missing: the agent of sample 8 returned no reward: return {"reward": <number>}, or choose another reward.type
    value: the agent returned the text "0.5" as reward of sample 8, expected a number, or an object of numbers
    value: the agent returned the boolean true as reward of sample 8, expected a number, or an object of numbers
    value: the agent returned the list [1.0] as reward of sample 8, expected a number, or an object of numbers
    value: the agent returned the object {"score":1.0} as reward of sample 8, expected a number; for an object, reward.key has to name its entry
    "#);
}

#[tokio::test]
async fn a_key_names_the_entry_of_an_object() {
    let returned = |reward: Value| Sample {
        index: Some(2),
        reward,
        ..Sample::default()
    };
    let samples = [
        returned(json!({"score": 0.5, "acc": true, "pred": "x"})),
        returned(json!(0.5)),
        returned(json!({"acc": 1})),
        returned(json!({"score": "high"})),
        returned(json!({"score": null})),
    ];
    let scored = rewards(RewardModel::Agent, "score").score(&samples).await;
    insta::assert_snapshot!(texts(&scored), @r#"
    {"score":0.5,"acc":true,"pred":"x"}
    0.5
    value: the agent returned the object {"acc":1} as reward of sample 2, expected an object whose `score` is a number
    value: the agent returned the object {"score":"high"} as reward of sample 2, expected an object whose `score` is a number
    value: the agent returned the object {"score":null} as reward of sample 2, expected an object whose `score` is a number
    "#);
}

/// A host that answers every reward call with what `result` makes of the request.
async fn with_host(
    batch: bool,
    samples: &[Sample],
    result: impl Fn(&Value) -> Value,
) -> Vec<Result<Value, RewardError>> {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("plugins.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    let model = RewardModel::Plugin(PluginReward {
        client: Arc::new(PluginClient::new(socket, 1)),
        path: "rewards.score".into(),
        args: json!({}),
        batch,
        deadline: Duration::from_secs(20),
    });
    let host = async {
        let mut stream = BufReader::new(listener.accept().await.expect("a connection").0);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.expect("a line");
            let request: Value = serde_json::from_str(&line).expect("JSON");
            let mut answer = result(&request);
            answer["id"] = request["id"].clone();
            stream
                .write_all(format!("{answer}\n").as_bytes())
                .await
                .expect("written");
        }
    };
    tokio::select! {
        scored = async { rewards(model, "").score(samples).await } => scored,
        () = host => unreachable!("the host ends with the test"),
    }
}

#[tokio::test]
async fn a_plug_in_scores_sample_by_sample_and_an_error_stays_with_its_sample() {
    let samples: Vec<_> = (0..7).map(|index| sample(index, "", Value::Null)).collect();
    let scored = with_host(
        false,
        &samples,
        |request| match request["samples"][0]["index"].as_i64() {
            Some(0) => json!({"result": [0.5]}),
            Some(1) => {
                json!({"error": {"type": "KeyError", "message": "'label'", "traceback": "..."}})
            }
            Some(2) => json!({"result": [null]}),
            Some(3) => json!({"result": [[1]]}),
            Some(4) => json!({"result": ["1"]}),
            Some(5) => json!({"result": [1, 2]}),
            _ => json!({"result": 1}),
        },
    );
    insta::assert_snapshot!(texts(&scored.await), @r#"
    0.5
    raised: rewards.score: KeyError: 'label'
    value: rewards.score returned null as reward of sample 2, expected a number, or an object of numbers
    value: rewards.score returned the list [1] as reward of sample 3, expected a number, or an object of numbers
    value: rewards.score returned the text "1" as reward of sample 4, expected a number, or an object of numbers
    count: rewards.score returned the list [1,2], expected a list of 1 rewards
    count: rewards.score returned the number 1, expected a list of 1 rewards
    "#);
}

#[tokio::test]
async fn a_plug_in_scores_a_group_in_one_call() {
    let samples: Vec<_> = (0..3).map(|index| sample(index, "", Value::Null)).collect();
    let scored = with_host(true, &samples, |request| {
        let count = request["samples"].as_array().map_or(0, Vec::len);
        json!({"result": (0..count).collect::<Vec<_>>()})
    });
    assert_eq!(texts(&scored.await), "0\n1\n2");
    let scored = with_host(true, &samples, |_| json!({"result": [1, 2]}));
    insta::assert_snapshot!(texts(&scored.await), @r#"
    count: rewards.score returned the list [1,2], expected a list of 3 rewards
    count: rewards.score returned the list [1,2], expected a list of 3 rewards
    count: rewards.score returned the list [1,2], expected a list of 3 rewards
    "#);
}

#[test]
fn labels_are_checked_for_what_grades_them() {
    assert_eq!(RewardModel::Math.label_rule(), LabelRule::TextOrNumber);
    assert_eq!(RewardModel::Agent.label_rule(), LabelRule::Optional);
}

#[test]
fn a_long_wrong_value_is_cut_in_its_error() {
    let text = value::described(&json!("é".repeat(1000)));
    assert_eq!(text.chars().count(), "the text ".len() + 120 + 3);
}
