//! Where the user's processes of a local run work: in directories of their own, not in that of whoever started it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::run::{self, AGENT, Ended, Run, tempdir};

/// One turn, as a program of the user's; it needs a second program, which is on PATH.
const PROGRAM: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys, urllib.request
subprocess.run(["helper-of-mine"], check=True)
assert sys.argv[1:] == ["problems.txt"], sys.argv
open("litter", "w").close()
prompt = json.load(open(os.environ["ROLLOUT_PROMPT_FILE"]))
body = json.dumps({"model": "default", "messages": prompt}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
urllib.request.urlopen(request).read()
"#;

/// Runs a changed manifest, started in the directory `checkout` of a home.
async fn run_in_a_checkout(
    home: &Path,
    variables: &[(&str, &str)],
    change: impl Fn(String) -> String,
) -> Ended {
    let manifest = home.join("job.yaml");
    let text = fs::read_to_string(AGENT).unwrap();
    let changed = change(text.clone());
    assert_ne!(changed, text);
    fs::write(&manifest, changed).unwrap();
    let checkout = home.join("checkout");
    fs::create_dir_all(&checkout).unwrap();
    let path = manifest.to_str().unwrap();
    Run::start_in(&checkout, variables, path, &home.join("out"))
        .end()
        .await
}

/// The job with a plug-in's reward, `rewards.score` of these lines.
fn scored_by(text: &str, rewards: &str) -> String {
    let text = text.replace(
        "  reward:\n    type: Math\n",
        "  reward: {type: Plugin, plugin: {path: rewards.score}}\n  plugins: {image: example.dev/rewards:1, code: {configMap: {name: files}}}\n",
    );
    text.trim_end().to_owned() + "\n" + rewards
}

async fn ends_well(ended: &Ended, output: &Path) {
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.talk, run::logs(output));
    run::verify(output).await;
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn agents_and_plugins_do_not_reach_the_checkout() {
    let home = tempdir();
    let thesis = home.path().join("checkout/work/thesis.tex");
    fs::create_dir_all(thesis.parent().unwrap()).unwrap();
    fs::write(&thesis, "").unwrap();
    let cleans = "        import os, shutil\n        shutil.rmtree('work', ignore_errors=True)\n        os.makedirs('work')\n        open('litter', 'w').close()\n        messages = list(prompt)\n";
    let scores = "  rewards.py: |\n    def score(args, sample):\n        open('scores', 'a').close()\n        return len(sample.response) % 2\n";
    let ended = run_in_a_checkout(home.path(), &[], |text| {
        let text = text
            .replace("        messages = list(prompt)\n", cleans)
            .replace("concurrentSessionsPerPod: 8", "concurrentSessionsPerPod: 1");
        scored_by(&text, scores)
    })
    .await;
    let output = home.path().join("out");
    ends_well(&ended, &output).await;
    assert!(thesis.exists());
    assert_eq!(names(&home.path().join("checkout")), ["work"]);
    for gone in ["agents", "plugins"] {
        let directory = output.join(".rollout").join(gone);
        assert!(
            !directory.exists(),
            "{} goes with the run",
            directory.display()
        );
    }
}

/// User code that cleans up where it is, and dies: what is started next must be able to ask where it is, as the launcher of pyenv does.
#[tokio::test]
async fn code_that_removes_the_directory_it_works_in_is_started_again() {
    const RUINS: &str = "import os, shutil\n    os.getcwd()\n    def ruin(name):\n        flag = os.path.join(os.path.dirname(__file__), name)\n        if not os.path.exists(flag):\n            open(flag, 'w').close()\n            shutil.rmtree(os.getcwd())\n            os._exit(7)\n";
    let home = tempdir();
    let scores = format!(
        "  rewards.py: |\n    {RUINS}    def score(args, sample):\n        ruin('rewards-died')\n        return len(sample.response) % 2\n"
    );
    let ended = run_in_a_checkout(home.path(), &[], |text| {
        let text = text
            .replace("import asyncio\n", &format!("import asyncio\n    {RUINS}"))
            .replace(
                "        messages = list(prompt)\n",
                "        ruin('agent-died')\n        messages = list(prompt)\n",
            );
        scored_by(&text, &scores)
    })
    .await;
    let output = home.path().join("out");
    ends_well(&ended, &output).await;
    for flag in ["agent/agent-died", "plugins/rewards-died"] {
        let flag = output.join(".rollout/code").join(flag);
        assert!(flag.exists(), "{} was not reached", flag.display());
    }
}

/// What a person's own variables name by a relative path is found where that person is.
#[tokio::test]
async fn code_on_a_relative_pythonpath_is_found() {
    let home = tempdir();
    let source = home.path().join("checkout/src");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("helpers_of_mine.py"), "").unwrap();
    let ended = run_in_a_checkout(home.path(), &[("PYTHONPATH", "src")], |text| {
        text.replace("import asyncio\n", "import asyncio, helpers_of_mine\n")
    })
    .await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
}

#[tokio::test]
async fn a_program_beside_the_manifest_is_found_and_its_files_are_asked_for() {
    let home = tempdir();
    let checkout = home.path().join("checkout");
    fs::create_dir_all(checkout.join("bin")).unwrap();
    for (path, text) in [("agent.py", PROGRAM), ("bin/helper-of-mine", "#!/bin/sh\n")] {
        let path = checkout.join(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(checkout.join("problems.txt"), "").unwrap();
    let path = format!("bin:{}", std::env::var("PATH").unwrap());
    let ended = run_in_a_checkout(home.path(), &[("PATH", &path)], |text| {
        let from = text.find("        function:\n").unwrap();
        let to = text.find("      sessionDeadlineSeconds").unwrap();
        let container = "        container: {template: {spec: {containers: [{name: agent, image: i, command: [./agent.py, problems.txt]}]}}}\n";
        format!("{}{container}{}", &text[..from], &text[to..])
            .replace("concurrentSessionsPerPod: 8", "concurrentSessionsPerPod: 1")
    })
    .await;
    let output = home.path().join("out");
    ends_well(&ended, &output).await;
    for row in run::rows(&output) {
        assert!(row["metadata"]["agent_error"].is_null(), "{row}");
    }
    let note = "the agent works in a directory of its own, where there is no problems.txt; write ";
    assert_eq!(ended.talk.matches(note).count(), 1, "{}", ended.talk);
    assert_eq!(names(&checkout), ["agent.py", "bin", "problems.txt"]);
}
