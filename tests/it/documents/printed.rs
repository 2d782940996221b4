//! What README shows as printed by the demo's second job has the shape of what a job with an agent prints today. Numbers, texts and names differ, and of
//! the lines of progress (which depend on the clock) only the first one is sure to come: `src/cli/local/progress.rs` holds them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::{document, root};

/// Bound on one run; generous, since machines are shared.
const LIMIT: Duration = Duration::from_mins(4);

/// What the demo's second job is called in README, and where its samples go.
const SHOWN: [(&str, &str); 2] = [("out/demo/agent", "DIR"), ("job default/agent,", "JOB")];

/// What a command prints, both streams.
async fn printed(home: &Path, arguments: &[&str]) -> String {
    let child = Command::new(env!("CARGO_BIN_EXE_rollout-operator"))
        .args(arguments)
        .current_dir(home)
        .env("TMPDIR", home)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, child).await;
    let output = output.expect("an end in time").expect("the command runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// A line without what differs from run to run.
fn shape(line: &str, names: &[(&str, &str)]) -> String {
    let mut line = line.to_owned();
    for (name, stands_for) in names {
        line = line.replace(name, stands_for);
    }
    if line.starts_with("  metadata  ") {
        let is_pair = line.contains(": ");
        return format!("  metadata  {}", if is_pair { "KEY: VALUE" } else { "?" });
    }
    if ["  system", "  user", "  assistant", "  tool"].contains(&line.as_str()) {
        return "  ROLE".to_owned();
    }
    let mut shape = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '"' {
            for letter in letters.by_ref() {
                if letter == '"' {
                    break;
                }
            }
            shape.push_str("TEXT");
        } else if letter.is_ascii_digit() {
            while letters
                .next_if(|next| next.is_ascii_digit() || *next == '.')
                .is_some()
            {}
            if shape.ends_with('-') {
                shape.pop();
            }
            shape.push('N');
        } else {
            shape.push(letter);
        }
    }
    shape
}

/// Of what is printed, the lines with words of ours: of a conversation those that name who speaks, of progress none.
fn shapes(text: &str, names: &[(&str, &str)]) -> Vec<(String, String)> {
    let ours = text.lines().filter(|line| {
        let is_of_a_conversation = line.starts_with("    ");
        !line.is_empty() && !is_of_a_conversation && !line.starts_with("Running step ")
    });
    ours.map(|line| (line.to_owned(), shape(line, names)))
        .collect()
}

#[tokio::test]
async fn readme_shows_what_is_printed() {
    let readme = document("README.md");
    let block = readme
        .blocks()
        .into_iter()
        .find(|block| block.text.starts_with("== 2. "))
        .expect("what the demo prints of its second job");
    let (title, shown) = block.text.split_once('\n').expect("lines");
    let said = format!("say \"{}\"", title.trim_start_matches("== "));
    assert!(
        document("demo").text.contains(&said),
        "the demo says no {title:?}"
    );

    let home = tempfile::tempdir().expect("a directory");
    let manifest = root().join("tests/fixtures/local/agent.yaml");
    let manifest = manifest.to_str().expect("text");
    let mut today = printed(home.path(), &["local", manifest, "--output", "samples"]).await;
    today += &printed(home.path(), &["samples", "verify", "samples"]).await;
    today += &printed(home.path(), &["samples", "show", "samples", "--limit", "1"]).await;
    let own = [
        ("in samples", "in DIR"),
        ("go to samples", "go to DIR"),
        ("samples: the samples", "DIR: the samples"),
        // Whether agents still run when there are groups enough is a matter of moments.
        ("hook NoHook", "hook HookSucceeded"),
    ];
    let job = today
        .split("of job ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let job = format!("job {}", job.expect("the job's name"));
    let names: Vec<_> = own.into_iter().chain([(job.as_str(), "JOB")]).collect();

    let known: BTreeSet<_> = shapes(&today, &names)
        .into_iter()
        .map(|(_, shape)| shape)
        .collect();
    let of_readme = shapes(shown, &SHOWN);
    assert!(of_readme.len() > 20, "{of_readme:?}");
    let strange: Vec<_> = of_readme
        .iter()
        .filter(|(_, shape)| !known.contains(shape))
        .map(|(line, _)| line.as_str())
        .collect();
    assert!(
        strange.is_empty(),
        "README shows\n{}\nand today it is\n{today}",
        strange.join("\n")
    );
}
