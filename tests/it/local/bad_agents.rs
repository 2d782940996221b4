//! Agents and data that cannot work: the job ends soon, says why, and leaves no wrong row.

use nix::sys::signal::Signal;

use super::run::{self, AGENT, Ended, Run, tempdir};

/// Runs the agent's job with its code, or something else of the manifest, replaced.
async fn run_with(change: impl Fn(String) -> String) -> (tempfile::TempDir, Ended) {
    let home = tempdir();
    let manifest = home.path().join("job.yaml");
    let text = std::fs::read_to_string(AGENT).unwrap();
    std::fs::write(&manifest, change(text)).unwrap();
    let output = home.path().join("out");
    let ended = Run::start(manifest.to_str().unwrap(), &output).end().await;
    assert_eq!(run::problems(&output).await, serde_json::json!([]));
    (home, ended)
}

#[tokio::test]
async fn an_agent_that_cannot_be_imported_ends_the_job_with_its_reason() {
    let (home, ended) =
        run_with(|text| text.replace("import asyncio", "import no_such_module_at_all")).await;
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    assert!(
        ended
            .talk
            .contains("the agent cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        "{}",
        ended.talk
    );
    let failures = &run::last_word(&home.path().join("out"))["recentFailures"];
    let tries = failures[0]["count"].as_u64().unwrap();
    // Pods that had begun when the third one failed may still say so.
    assert!((3..=8).contains(&tries), "{failures}");
    assert!(
        ended.talk.contains("/.rollout/logs/agent-*.log"),
        "{}",
        ended.talk
    );
}

#[tokio::test]
async fn an_agent_that_hangs_when_it_is_imported_is_named_with_its_log() {
    let home = tempdir();
    let manifest = home.path().join("job.yaml");
    let text = std::fs::read_to_string(AGENT).unwrap();
    let text = text.replace(
        "    import asyncio\n",
        "    import asyncio, time\n\n    time.sleep(3600)\n",
    );
    std::fs::write(&manifest, text).unwrap();
    let output = home.path().join("out");
    let mut run = Run::start(manifest.to_str().unwrap(), &output);
    run.wait_for_talk("sessions wait for agents (agent.py is being loaded for 10 s; log: ")
        .await;
    run.signal(Signal::SIGINT);
    let ended = run.end().await;
    assert_eq!(ended.code, Some(130), "{}", ended.talk);
    assert!(
        ended.talk.contains("/.rollout/logs/agent-0.log)"),
        "{}",
        ended.talk
    );
}

#[tokio::test]
async fn an_agent_that_always_raises_ends_the_job_with_its_reason() {
    let without_filter = |text: String| text.replace("    filter: {type: NonzeroRewardStd}\n", "");
    for filter in [false, true] {
        let (_home, ended) = run_with(|text| {
            let text = text.replace(
                "messages = list(prompt)",
                "raise RuntimeError('no tool server')",
            );
            if filter { text } else { without_filter(text) }
        })
        .await;
        assert_eq!(ended.code, Some(1), "{}", ended.talk);
        assert!(ended.talk.contains("ErrorBudgetExceeded"), "{}", ended.talk);
        assert!(ended.talk.contains("no tool server"), "{}", ended.talk);
    }
}

/// One prompt's agents kill their process, with whatever other sessions it runs.
#[tokio::test]
async fn an_agent_that_kills_its_process_fails_alone_and_harms_no_other_group() {
    let deadly = "12 * 12";
    let (home, ended) = run_with(|text| {
        let rollout = "    batchSize: 4\n    samplesPerPrompt: 4\n    overSampling: {batchSize: 8}\n    filter: {type: NonzeroRewardStd}\n";
        assert!(text.contains(rollout));
        // Every group is needed, and nothing that fails is forgiven.
        let needy = "    batchSize: 10\n    samplesPerPrompt: 4\n    errorBudget: {infraFailures: 0, retriesPerSample: 0, retriesPerGroup: 0, consecutiveGroupFailures: 1}\n";
        text.replace(rollout, needy)
            .replace("    import asyncio\n", "    import asyncio, os\n")
            .replace(
                "            said = reply",
                &format!("            if {deadly:?} in prompt[0][\"content\"]:\n                os._exit(3)\n            said = reply"),
            )
    })
    .await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    let output = home.path().join("out");
    let rows = run::rows(&output);
    assert_eq!(rows.len(), 40);
    for row in rows {
        let is_deadly = row["prompt"].to_string().contains(deadly);
        let failed = row["metadata"]["agent_outcome"] == "agent_failed";
        assert_eq!(failed, is_deadly, "{row}");
    }
    let failures = run::last_word(&output)["recentFailures"].to_string();
    assert!(failures.contains("shared_process_died"), "{failures}");
    assert!(failures.contains("exit code 3"), "{failures}");
}

#[tokio::test]
async fn a_bad_row_is_named_by_line_and_column() {
    let (_home, ended) = run_with(|text| text.replace(r#""label": "13"}"#, r#""label": }"#)).await;
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    assert!(ended.talk.contains("dataset.jsonl:2:"), "{}", ended.talk);
}

/// What the simulated engines' oracle cannot know is no reason to stop: a bad row is the driver's to name, and its budget's to forgive.
#[tokio::test]
async fn bad_rows_within_the_budget_and_prompts_without_a_user_are_no_obstacle() {
    let (home, ended) = run_with(|text| {
        let rows = "  train.jsonl: |\n";
        assert!(text.contains(rows));
        let more = [
            r#"{"prompt": [{"role": "user"}], "label": "1"}"#,
            r#"{"prompt": [{"role": "user", "content": 5}], "label": "1"}"#,
            r#"{"prompt": [{"role": "user", "content": "What?"}], "label": "1", "metadata": 3}"#,
            r#"{"prompt": [{"role": "system", "content": "hello"}], "label": "1"}"#,
            r#"{"prompt": [{"role": "user", "content": " "}], "label": "1"}"#,
        ]
        .map(|row| format!("    {row}\n"));
        text.replace(rows, &(rows.to_owned() + &more.concat()))
            .replace("    filter: {type: NonzeroRewardStd}\n", "")
            .replace(
                "    samplesPerPrompt: 4\n",
                "    samplesPerPrompt: 4\n    errorBudget: {badRows: 5}\n",
            )
    })
    .await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    let log = std::fs::read_to_string(home.path().join("out/.rollout/logs/driver.log")).unwrap();
    for line in ["dataset.jsonl:1:", "dataset.jsonl:2:", "dataset.jsonl:3:"] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

#[tokio::test]
async fn a_data_set_that_the_oracle_knows_nothing_of_is_answered_wrong() {
    let (home, ended) = run_with(|text| {
        let (objects, _rows) = text.split_once("  train.jsonl: |\n").unwrap();
        let row = r#"{"prompt": [{"role": "system", "content": "Say something."}], "label": "1"}"#;
        format!("{objects}  train.jsonl: |\n    {row}\n")
            .replace("    filter: {type: NonzeroRewardStd}\n", "")
    })
    .await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    for row in run::rows(&home.path().join("out")) {
        assert_eq!(row["reward"], 0, "{row}");
    }
}
