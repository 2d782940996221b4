//! Every command that a document or an example's comment shows can be typed: the program is there and takes these arguments, and the files that come
//! with the repository are there. Nothing is run.

use std::os::unix::fs::PermissionsExt;

use super::{Document, documents, root};

/// What a reader has: shown as files of their own.
const OF_THE_READER: [&str; 2] = ["out", "target"];

/// The commands of a line, as words. A shell's syntax beyond quotes, `&&` and comments is not read.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    for word in words(line) {
        if word == "&&" {
            commands.push(Vec::new());
        } else if word == "#" {
            break;
        } else if let Some(command) = commands.last_mut() {
            command.push(word);
        }
    }
    commands
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    assert_eq!(quote, None, "a quote is open: {line}");
    words.extend(word);
    words
}

/// Why a command cannot be typed.
fn problem(words: &[String]) -> Option<String> {
    let (program, arguments) = words.split_first()?;
    if let Some(missing) = arguments.iter().find(|word| is_missing(word)) {
        return Some(format!("{missing} is not there"));
    }
    match program.as_str() {
        "rollout-operator" => rollout_operator::cli::command()
            .try_get_matches_from(words)
            .err()
            .map(|error| error.to_string()),
        "cargo" | "kubectl" | "helm" | "kind" => None,
        script if script.starts_with("./") || script.starts_with("scripts/") => {
            of_script(script, arguments)
        }
        _ => Some("nobody knows the program".to_owned()),
    }
}

/// A path into the repository that leads nowhere.
fn is_missing(word: &str) -> bool {
    let Some((folder, _)) = word.split_once('/') else {
        return false;
    };
    let is_ours = !OF_THE_READER.contains(&folder) && root().join(folder).is_dir();
    is_ours && !folder.is_empty() && !root().join(word).exists()
}

/// A script of the repository: its flags and its first argument stand in it.
fn of_script(script: &str, arguments: &[String]) -> Option<String> {
    let path = root().join(script);
    let Ok(file) = std::fs::metadata(&path) else {
        return Some(format!("{script} is not there"));
    };
    if file.permissions().mode() & 0o111 == 0 {
        return Some(format!("{script} cannot be run"));
    }
    let text = std::fs::read_to_string(&path).expect("a script");
    let known: Vec<_> = text
        .split(|letter: char| !(letter.is_alphanumeric() || letter == '-'))
        .collect();
    let sub_command = arguments.first().filter(|word| !word.contains(['/', '.']));
    // What follows a sub-command belongs to the program that it calls.
    let flags = arguments
        .iter()
        .take_while(|_| sub_command.is_none())
        .filter(|word| word.starts_with("--"));
    let told = sub_command.into_iter().chain(flags);
    told.map(|word| word.split('=').next().unwrap_or(word))
        .find(|word| !known.contains(word))
        .map(|word| format!("{script} does not know {word}"))
}

/// Why a mention, which may leave arguments out, names what is not there.
fn problem_of_mention(words: &[String]) -> Option<String> {
    let (program, arguments) = words.split_first()?;
    if program != "rollout-operator" {
        return problem(words);
    }
    let mut level = rollout_operator::cli::command();
    for word in arguments {
        if let Some(flag) = word.strip_prefix("--") {
            let name = flag.split('=').next().unwrap_or(flag);
            if !level
                .get_arguments()
                .any(|known| known.get_long() == Some(name))
            {
                return Some(format!("{} has no --{name}", level.get_name()));
            }
        } else if level.has_subcommands() {
            let mut next = None;
            for name in word.split('|') {
                let Some(found) = level.find_subcommand(name) else {
                    return Some(format!("{} has no {name}", level.get_name()));
                };
                next = Some(found.clone());
            }
            level = next?;
        }
    }
    None
}

/// The lines of an example's comments that are commands.
fn of_examples() -> Vec<(String, String)> {
    let folders = std::fs::read_dir(root().join("examples")).expect("examples");
    let files = folders.flat_map(|folder| {
        let folder = folder.expect("a folder").path();
        std::fs::read_dir(folder).expect("files")
    });
    let manifests = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"));
    let lines = manifests.flat_map(|path| {
        let text = std::fs::read_to_string(&path).expect("a manifest");
        let shown = text.lines().filter_map(|line| line.strip_prefix("#   "));
        let shown: Vec<_> = shown.map(str::to_owned).collect();
        shown
            .into_iter()
            .map(move |line| (path.display().to_string(), line))
    });
    lines.collect()
}

/// The lines of a document's console blocks, and of its indented code, that are commands.
fn of_document(document: &Document) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for block in document.blocks() {
        if block.language != "console" {
            continue;
        }
        for (number, line) in (block.line..).zip(block.text.lines()) {
            lines.extend(
                line.strip_prefix("$ ")
                    .map(|line| (number, line.to_owned())),
            );
        }
    }
    for (number, line) in document.prose() {
        if line.starts_with("    rollout-operator ") {
            lines.push((number, line.trim_start().to_owned()));
        }
    }
    let path = document.path.display();
    lines
        .into_iter()
        .map(|(number, line)| (format!("{path}:{number}"), line))
        .collect()
}

#[test]
fn every_command_can_be_typed() {
    let documents = documents();
    let mut lines: Vec<_> = documents.iter().flat_map(of_document).collect();
    lines.extend(of_examples());
    assert!(lines.len() > 15, "{} commands", lines.len());
    let problems = lines.iter().flat_map(|(place, line)| {
        let found = commands(line)
            .into_iter()
            .filter_map(|words| problem(&words));
        found.map(move |found| format!("{place}: {line}\n  {found}"))
    });
    let problems: Vec<_> = problems.collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_command_that_is_mentioned_is_there() {
    let mut mentions = 0;
    let mut problems = Vec::new();
    for document in documents() {
        for (number, code) in document.inline_code() {
            let starts = ["rollout-operator ", "./", "scripts/"];
            if !starts.iter().any(|start| code.starts_with(start)) {
                continue;
            }
            mentions += 1;
            let found = problem_of_mention(&words(code));
            problems.extend(
                found.map(|found| format!("{}:{number}: {code}: {found}", document.path.display())),
            );
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(mentions > 15, "{mentions} mentions");
}

#[test]
fn a_wrong_command_is_found() {
    let refused = [
        "rollout-operator local examples/agent/job.yaml --output out/agent --phyton p",
        "rollout-operator samples show",
        "rollout-operator validate examples/nowhere.yaml",
        "./demo --engin sglang",
        "./dev-cluster upp",
        "./nowhere",
        "kubectl apply -f examples/nowhere",
        "rollout_operator crds",
    ];
    for line in refused {
        let found = commands(line).into_iter().find_map(|words| problem(&words));
        assert!(found.is_some(), "{line}");
    }
    for mention in [
        "rollout-operator sample show|verify DIR",
        "rollout-operator crds --directory crds",
    ] {
        assert!(problem_of_mention(&words(mention)).is_some(), "{mention}");
    }
}
