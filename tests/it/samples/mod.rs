//! `rollout-operator samples` as a person runs it.

mod fixture;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use fixture::Fixture;
use rollout_engine::Reason;

#[test]
fn show_marks_what_is_trained_with_brackets_where_there_are_no_colours() {
    insta::assert_snapshot!(Fixture::new().run(&["show", "out", "--index", "0"]), @r#"
    exit 0
    ----- out
    sample 0  group 0  completed  reward 1
      tokens    N prompt, N response, N trained
      label     "42"
      weights   default, default
      cache     60 of 160 prompt tokens
      log-probs mean -0.5000, lowest -0.5000
      metadata  exit_status: "done"
      metadata  agent_metrics: {"turns":2}
      system
        Use the calculator.
      user
        What is 6 times 7?
      assistant
        ⟦<tool_call>⟧
        ⟦{"name": "calculator", "arguments": {"expression": "6*7"}}⟧
        ⟦</tool_call><|im_end|>⟧
      tool
        <tool_response>
        42
        </tool_response>
      assistant
        ⟦\boxed{42}<|im_end|>⟧

    ----- err
    "#);
}

#[test]
fn show_marks_what_is_trained_with_colours_when_asked() {
    let shown = Fixture::new().run(&["show", "out", "--index", "0", "--color", "always"]);
    insta::assert_snapshot!(shown.replace('\u{1b}', "ESC"), @r#"
    exit 0
    ----- out
    ESC[1msample 0  group 0  completed  reward 1ESC[0m
      ESC[2mtokens   ESC[0m N prompt, N response, N trained
      ESC[2mlabel    ESC[0m "42"
      ESC[2mweights  ESC[0m default, default
      ESC[2mcache    ESC[0m 60 of 160 prompt tokens
      ESC[2mlog-probsESC[0m mean -0.5000, lowest -0.5000
      ESC[2mmetadata ESC[0m exit_status: "done"
      ESC[2mmetadata ESC[0m agent_metrics: {"turns":2}
      ESC[2msystemESC[0m
        Use the calculator.
      ESC[2muserESC[0m
        What is 6 times 7?
      ESC[2massistantESC[0m
        ESC[32m<tool_call>ESC[0m
        ESC[32m{"name": "calculator", "arguments": {"expression": "6*7"}}ESC[0m
        ESC[32m</tool_call><|im_end|>ESC[0m
      ESC[2mtoolESC[0m
        <tool_response>
        42
        </tool_response>
      ESC[2massistantESC[0m
        ESC[32m\boxed{42}<|im_end|>ESC[0m

    ----- err
    "#);
}

#[test]
fn show_without_the_models_tokenizer_says_how_much_is_trained() {
    let fixture = Fixture::new();
    // The text is no longer that of the ids: another model's tokenizer wrote them.
    fixture.edit("samples-0.jsonl", "boxed{42}", "boxed{42} indeed");
    insta::assert_snapshot!(fixture.run(&["show", "out", "--index", "0"]), @r#"
    exit 0
    ----- out
    sample 0  group 0  completed  reward 1
      tokens    N prompt, N response, N trained
      label     "42"
      weights   default, default
      cache     60 of 160 prompt tokens
      log-probs mean -0.5000, lowest -0.5000
      metadata  exit_status: "done"
      metadata  agent_metrics: {"turns":2}
      user
        What is 6 times 7?
      response
        <tool_call>
        {"name": "calculator", "arguments": {"expression": "6*7"}}
        </tool_call>
      tool
        <tool_response>
        42
        </tool_response>
      assistant
        \boxed{42} indeed
        (tokens: N trained, N not, N trained; --tokenizer DIR shows which)

    ----- err
    "#);
}

#[test]
fn show_selects_by_group_index_and_step() {
    let fixture = Fixture::new();
    let headings = |arguments: &[&str]| {
        let shown = fixture.run(&[&["show", "out"], arguments].concat());
        shown
            .lines()
            .filter(|line| line.starts_with("sample"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        headings(&["--group", "1"]),
        [
            "sample 2  group 1  completed  reward 0",
            "sample 3  group 1  completed  reward 0"
        ]
    );
    assert_eq!(headings(&["--index", "3"]).len(), 1);
    assert_eq!(headings(&["--step", "0"]).len(), 4);
    assert_eq!(
        headings(&["--extra"]),
        ["sample 2000  group 1000  aborted  reward 0"]
    );
}

#[test]
fn show_says_what_it_left_out_and_what_it_did_not_find() {
    let fixture = Fixture::new();
    let talk = |arguments: &[&str]| {
        let shown = fixture.run(&[&["show"], arguments].concat());
        let (out, err) = shown.split_once("----- err\n").expect("both");
        format!(
            "{} | {}",
            out.lines().next().expect("a code"),
            err.trim_end()
        )
    };
    let said = [
        talk(&["out", "--limit", "1"]),
        talk(&["out", "--limit", "0"]),
        talk(&["out", "--index", "77"]),
        talk(&["out", "--step", "5"]),
        talk(&["elsewhere"]),
        talk(&["out", "--tokenizer", "out"]),
    ];
    insta::assert_snapshot!(said.join("\n"), @r#"
    exit 0 | 3 more; --limit 0 prints all
    exit 0 | 
    exit 1 | no sample matches
    exit 1 | error: out has no such step; finished: 0
    exit 1 | error: cannot read elsewhere: not a directory
    exit 1 | error: cannot read out/tokenizer.json: entity not found
    "#);
}

#[test]
fn show_prints_rows_as_they_are() {
    let fixture = Fixture::new();
    let shown = fixture.run(&["show", "out", "--format", "json", "--group", "1"]);
    let file = std::fs::read_to_string(fixture.path("samples-0.jsonl")).expect("a file");
    let rows: Vec<_> = file.lines().skip(2).collect();
    let printed: Vec<_> = shown.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(printed, rows);
}

#[test]
fn show_ends_quietly_when_its_reader_has_seen_enough() {
    let answers: Vec<_> = (0..200).map(|group| (group, "a".repeat(2000))).collect();
    let answers: Vec<_> = answers
        .iter()
        .map(|(group, answer)| (*group, answer.as_str()))
        .collect();
    let fixture = Fixture::of(&answers);
    let mut child = fixture
        .command(&["show", "out", "--limit", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut reader = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    drop(reader);
    let ended = child.wait_with_output().expect("it ended");
    assert_eq!(line, "sample 0  group 0  completed  reward 0\n");
    assert_eq!(
        (
            ended.status.code(),
            String::from_utf8_lossy(&ended.stderr).into_owned()
        ),
        (Some(0), String::new())
    );
}

#[test]
fn verify_of_sound_samples() {
    insta::assert_snapshot!(Fixture::new().run(&["verify", "out"]), @r#"
    exit 0
    ----- out
    step 0: 2 groups, 4 samples, N trained tokens, 1 samples not kept
    checked: counts, hashes, ledgers and metrics of the manifest against the files
    checked: each row: its fields, the lengths of its arrays, masks of 0 and 1, finite log-probabilities not above 0, 0 where nothing is trained
    checked: ids against the built-in tokenizer
    checked: the text of 4 of 4 kept responses against their ids; up to 32 bytes that an engine cuts off the end are let pass
    not checked: prompt ids against the prompt
    not checked: prompts and labels against the data set, which is not in the output
    not checked: values of log-probabilities and rewards, and who wrote the files: the hashes are in the same directory
    out: the samples of job default/calculator, attempt 1 are sound
    ----- err
    "#);
}

#[test]
fn verify_names_file_line_and_field() {
    let fixture = Fixture::new();
    fixture.edit("samples-0.jsonl", "\"reward\":1", "\"reward\":null");
    fixture.edit(
        "samples-0.jsonl",
        "\"rollout_log_probs\":[-0.5",
        "\"rollout_log_probs\":[0.5",
    );
    insta::assert_snapshot!(fixture.run(&["verify", "out"]), @r#"
    exit 1
    ----- out
    out/samples-0.jsonl:1: rollout_log_probs: the entry at 0 is 0.5, above 0
    out/samples-0.jsonl:1: reward: is null, but the job scores samples with Math
    out/manifest.json: step 0.samples.bytes: is N, samples-0.jsonl has N
    out/manifest.json: step 0.samples.sha256: is (hash), samples-0.jsonl has (hash)
    out/manifest.json: step 0.metrics.rollout/raw_reward: is 0.25, the samples give 0.0
    step 0: 2 groups, 4 samples, N trained tokens, 1 samples not kept
    checked: counts, hashes, ledgers and metrics of the manifest against the files
    checked: each row: its fields, the lengths of its arrays, masks of 0 and 1, finite log-probabilities not above 0, 0 where nothing is trained
    checked: ids against the built-in tokenizer
    checked: the text of 4 of 4 kept responses against their ids; up to 32 bytes that an engine cuts off the end are let pass
    not checked: prompt ids against the prompt
    not checked: prompts and labels against the data set, which is not in the output
    not checked: values of log-probabilities and rewards, and who wrote the files: the hashes are in the same directory
    out: 5 problems in the samples of job default/calculator, attempt 1
    ----- err
    "#);
}

#[test]
fn verify_of_what_is_no_output() {
    let fixture = Fixture::new();
    insta::assert_snapshot!(fixture.run(&["verify", "elsewhere"]), @r#"
    exit 1
    ----- out
    ----- err
    error: cannot read elsewhere: not a directory
    "#);
    std::fs::create_dir(fixture.path("empty")).expect("made");
    insta::assert_snapshot!(fixture.run(&["verify", "out/empty"]), @r#"
    exit 1
    ----- out
    out/empty/manifest.json: is not there, and nothing else of a job: this is no output directory
    out/empty: 1 problem in the samples
    ----- err
    "#);
}

/// What both commands say about an output, one line each, the code first.
fn both(fixture: &Fixture, directory: &str) -> String {
    let said = ["verify", "show"].map(|command| {
        let text = fixture.run(&[command, directory]);
        let lines = text.lines().filter(|line| !line.starts_with("-----"));
        format!("{command}: {}", lines.collect::<Vec<_>>().join(" | "))
    });
    said.join("\n")
}

#[test]
fn an_output_without_samples_says_why() {
    let failed = (
        Reason::ErrorBudgetExceeded,
        "16 groups failed in a row, the last one because of engine_failed",
    );
    insta::assert_snapshot!(both(&Fixture::without_samples(Some(failed)), "out"), @r"
    verify: exit 1 | out: job default/calculator ended with ErrorBudgetExceeded and kept no samples: 16 groups failed in a row, the last one because of engine_failed
    show: exit 1 | out: job default/calculator ended with ErrorBudgetExceeded and kept no samples: 16 groups failed in a row, the last one because of engine_failed
    ");
    let late = (Reason::DeadlineExceeded, "it took longer than 60 s");
    insta::assert_snapshot!(both(&Fixture::without_samples(Some(late)), "out"), @r"
    verify: exit 1 | out: job default/calculator ended with DeadlineExceeded and kept no samples: it took longer than 60 s
    show: exit 1 | out: job default/calculator ended with DeadlineExceeded and kept no samples: it took longer than 60 s
    ");
    let well = (Reason::TargetReached, "6 groups kept");
    insta::assert_snapshot!(both(&Fixture::without_samples(Some(well)), "out"), @r"
    verify: exit 1 | out/manifest.json: result.reason: is TargetReached, but there is no step | out: 1 problem in the samples of job default/calculator, attempt 1
    show: exit 1 | out: job default/calculator ended with TargetReached and kept no samples: 6 groups kept
    ");
    let undecided = Fixture::without_samples(None);
    insta::assert_snapshot!(both(&undecided, "out"), @r"
    verify: exit 1 | out/manifest.json: is not there: no step is finished; the job has no result yet: it was interrupted, has crashed, or still runs; the same job started again goes on where it was | out: 1 problem in the samples of job default/calculator, attempt 1
    show: exit 1 | out: no step of job default/calculator is finished: it was interrupted, has crashed, or still runs; the same job started again goes on where it was
    ");
    std::fs::create_dir(undecided.path("empty")).expect("made");
    insta::assert_snapshot!(both(&undecided, "out/empty"), @r"
    verify: exit 1 | out/empty/manifest.json: is not there, and nothing else of a job: this is no output directory | out/empty: 1 problem in the samples
    show: exit 1 | out/empty is no output directory: nothing in it is of a job
    ");
    insta::assert_snapshot!(both(&undecided, "elsewhere"), @r"
    verify: exit 1 | error: cannot read elsewhere: not a directory
    show: exit 1 | error: cannot read elsewhere: not a directory
    ");
}

#[test]
fn samples_of_a_job_that_failed_later_are_sound_and_its_end_is_said() {
    let late = (Reason::DeadlineExceeded, "it took longer than 60 s");
    let fixture = Fixture::ended(&[(0, "\\boxed{42}")], late);
    insta::assert_snapshot!(fixture.run(&["verify", "out"]), @r"
    exit 0
    ----- out
    step 0: 1 groups, 2 samples, N trained tokens, 1 samples not kept, fewer groups than asked for
    checked: counts, hashes, ledgers and metrics of the manifest against the files
    checked: each row: its fields, the lengths of its arrays, masks of 0 and 1, finite log-probabilities not above 0, 0 where nothing is trained
    checked: ids against the built-in tokenizer
    checked: the text of 2 of 2 kept responses against their ids; up to 32 bytes that an engine cuts off the end are let pass
    not checked: prompt ids against the prompt
    not checked: prompts and labels against the data set, which is not in the output
    not checked: values of log-probabilities and rewards, and who wrote the files: the hashes are in the same directory
    the job ended with DeadlineExceeded: it took longer than 60 s
    out: the samples of job default/calculator, attempt 1 are sound
    ----- err
    ");
}

#[test]
fn show_opens_no_file_but_those_of_the_layout() {
    for name in ["../../../../etc/passwd", "/etc/passwd", "../secret"] {
        let fixture = Fixture::new();
        std::fs::write(fixture.path("../secret"), "secret\n").expect("written");
        fixture.edit("manifest.json", "\"samples-0.jsonl\"", &format!("{name:?}"));
        assert_eq!(
            fixture.run(&["show", "out"]),
            format!(
                "exit 1\n----- out\n----- err\nerror: out/manifest.json cannot be used: step 0.samples.file is {name:?}, expected samples-0.jsonl; no other file is read\n"
            )
        );
    }
    let fixture = Fixture::new();
    std::fs::rename(fixture.path("samples-0.jsonl"), fixture.path("../secret")).expect("moved");
    std::os::unix::fs::symlink("../secret", fixture.path("samples-0.jsonl")).expect("a link");
    let shown = fixture.run(&["show", "out"]);
    assert!(shown.starts_with("exit 1\n----- out\n----- err\nerror: out/samples-0.jsonl cannot be used: it is no plain file"), "{shown}");
}

#[test]
fn show_of_damaged_rows_is_an_error_or_the_row_but_never_a_panic() {
    let edits = [
        ("\"response_length\":", "\"response_length\":9"),
        ("\"loss_mask\":[1", "\"loss_mask\":[1,1,1,255"),
        ("\"tokens\":[", "\"tokens\":[-1,99999999999,"),
        ("\"rollout_log_probs\":[-0.5,", "\"rollout_log_probs\":["),
        (
            "\"rollout_log_probs\":[-0.5,",
            "\"rollout_log_probs\":[null,",
        ),
        ("\"prompt\":[", "\"prompt\":[7,{\"tool_calls\":[1]},"),
        ("{", "{{"),
        ("\n", ""),
    ];
    for (from, to) in edits {
        let fixture = Fixture::new();
        fixture.edit("samples-0.jsonl", from, to);
        let shown = fixture.run(&["show", "out", "--limit", "0"]);
        assert!(
            shown.starts_with("exit 0\n") || shown.starts_with("exit 1\n"),
            "{shown}"
        );
        assert!(!shown.contains("panicked"), "{shown}");
        assert!(
            shown.starts_with("exit 0\n")
                || shown.contains("error: out/samples-0.jsonl:1 is no sample"),
            "{shown}"
        );
        assert!(
            fixture.run(&["verify", "out"]).starts_with("exit 1\n"),
            "{from}"
        );
    }
    let fixture = Fixture::new();
    let path = fixture.path("samples-0.jsonl");
    let bytes = std::fs::read(&path).expect("a file");
    for damaged in [&bytes[..bytes.len() / 2], &[0xff, 0xfe, b'\n'], &[0; 64]] {
        std::fs::write(&path, damaged).expect("written");
        let shown = fixture.run(&["show", "out"]);
        assert!(
            shown.starts_with("exit 1\n") && shown.contains("error: "),
            "{shown}"
        );
        assert!(!shown.contains("panicked"), "{shown}");
    }
    std::fs::remove_file(&path).expect("removed");
    let shown = fixture.run(&["show", "out"]);
    assert!(
        shown.contains("error: out/samples-0.jsonl is missing, but the manifest names it"),
        "{shown}"
    );
}

#[test]
fn verify_says_in_its_help_what_it_does_not_check() {
    let help = Fixture::new().run(&["verify", "--help"]);
    for words in ["Checked:", "Not checked:", "built-in tokenizer"] {
        assert!(help.contains(words), "{help}");
    }
}
