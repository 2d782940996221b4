//! An output directory as a driver leaves it: one step, two groups, an agent's turns tokenized with the built-in tokenizer.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rollout_driver::output::{
    BUILTIN_TOKENIZER, JobStamp, NotKept, OutputConfig, ResultEntry, RewardInfo, StepSummary,
    Writer, encode,
};
use rollout_engine::{JobResult, Reason, TakeEnd, Tally};
use rollout_session::{PrefixCacheInfo, Sample, SampleStatus};
use rollout_tokenizer::Tokenizer;
use serde_json::{Map, json};

const SYSTEM: &str = "<|im_start|>system\nUse the calculator.<|im_end|>\n<|im_start|>user\nWhat is 6 times 7?<|im_end|>\n<|im_start|>assistant\n";
const CALL: &str = "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"6*7\"}}\n</tool_call><|im_end|>";
const ANSWERED: &str =
    "\n<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n<|im_start|>assistant\n";

/// A directory that goes away with the test.
pub(super) struct Fixture {
    root: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::of(&[(0, "\\boxed{42}"), (1, "\\boxed{41}")])
    }

    /// A job that kept nothing, and how it ended, if it has.
    pub(super) fn without_samples(end: Option<(Reason, &str)>) -> Self {
        let fixture = Self {
            root: tempfile::tempdir().expect("a directory"),
        };
        let writer = fixture.writer();
        if let Some((reason, message)) = end {
            writer
                .decide(result(reason, message, Tally::default()))
                .expect("decided");
        }
        fixture
    }

    fn writer(&self) -> Writer {
        Writer::open(OutputConfig {
            directory: self.output(),
            job: JobStamp {
                namespace: "default".into(),
                name: "calculator".into(),
                uid: "u-1".into(),
                attempt: 1,
            },
            samples_per_prompt: 2,
            reward: RewardInfo {
                model: "Math".into(),
                key: String::new(),
            },
            tokenizer: Some(BUILTIN_TOKENIZER.into()),
            include_all: true,
            dataset: None,
        })
        .expect("a writer")
    }

    /// One group per answer.
    pub(super) fn of(answers: &[(i64, &str)]) -> Self {
        Self::ended(
            answers,
            (Reason::TargetReached, "every step has its groups"),
        )
    }

    /// One group per answer, and how the job ended.
    pub(super) fn ended(answers: &[(i64, &str)], (reason, message): (Reason, &str)) -> Self {
        let fixture = Self {
            root: tempfile::tempdir().expect("a directory"),
        };
        let writer = fixture.writer();
        let tokenizer = Tokenizer::builtin().expect("the built-in tokenizer");
        let mut ledger = Tally {
            taken: answers.len() as u64 + 1,
            ..Tally::default()
        };
        for (group, answer) in answers {
            let samples = [
                sample(&tokenizer, *group, 0, answer),
                sample(&tokenizer, *group, 1, "It is 40."),
            ];
            writer
                .keep(0, group.unsigned_abs(), &encode(&samples).expect("rows"))
                .expect("kept");
            ledger.count(&TakeEnd::Kept, 1);
        }
        let surplus = Sample {
            status: SampleStatus::Aborted,
            ..sample(&tokenizer, 1000, 0, "")
        };
        let end = NotKept {
            take: 9,
            state: "recycled",
            reason: "surplus",
        };
        writer.not_kept(0, 1000, end, &[surplus]).expect("written");
        ledger.count(&TakeEnd::Recycled("surplus".into()), 1);
        let kept = answers
            .iter()
            .map(|(group, _)| group.unsigned_abs())
            .collect();
        let summary = StepSummary {
            step: 0,
            complete: reason == Reason::TargetReached,
            kept,
            ledger: ledger.clone(),
            metrics: Map::new(),
        };
        writer.finish_step(&summary).expect("finished");
        writer
            .decide(result(reason, message, ledger))
            .expect("decided");
        fixture
    }

    pub(super) fn output(&self) -> PathBuf {
        self.root.path().join("out")
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rollout-operator"));
        command
            .arg("samples")
            .args(arguments)
            .current_dir(self.root.path())
            .env_remove("NO_COLOR");
        command
    }

    /// Runs the command and returns exit code, standard output and standard error.
    pub(super) fn run(&self, arguments: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(arguments).output().expect("it ran");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let code = status
            .code()
            .map_or("killed".to_owned(), |code| code.to_string());
        let said = format!(
            "exit {code}\n----- out\n{}----- err\n{}",
            text(stdout),
            text(stderr)
        );
        stable(&said)
    }

    /// Changes the text of a file.
    pub(super) fn edit(&self, name: &str, from: &str, to: &str) {
        let path = self.output().join(name);
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{name} has no {from}");
        std::fs::write(path, text.replacen(from, to, 1)).expect("written");
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.output()).join(name)
    }
}

/// Counts of tokens and bytes, and hashes, follow from the tokenizer and the record: other tests hold them.
fn stable(text: &str) -> String {
    let patterns = [
        ("[0-9a-f]{64}", "(hash)"),
        (r"bytes: is \d+, (\S+) has \d+", "bytes: is N, $1 has N"),
        (r"\d+ (prompt,|response,|trained|not\b)", "N $1"),
    ];
    patterns
        .iter()
        .fold(text.to_owned(), |text, (pattern, stable)| {
            regex::Regex::new(pattern)
                .expect("a pattern")
                .replace_all(&text, *stable)
                .into_owned()
        })
}

fn result(reason: Reason, message: &str, ledger: Tally) -> ResultEntry {
    let success = reason == Reason::TargetReached;
    let message = message.to_owned();
    ResultEntry {
        result: JobResult {
            reason,
            message,
            success,
        },
        ledger,
    }
}

/// Two turns: a tool call, its answer, and the end.
fn sample(tokenizer: &Tokenizer, group: i64, slot: i64, answer: &str) -> Sample {
    let ids = |text: &str| tokenizer.encode(text).expect("ids");
    let last = format!("{answer}<|im_end|>");
    let mut tokens = ids(SYSTEM);
    let (mut mask, mut log_probs, mut response) = (Vec::new(), Vec::new(), String::new());
    for (text, trained) in [(CALL, 1), (ANSWERED, 0), (last.as_str(), 1)] {
        let part = ids(text);
        mask.extend(part.iter().map(|_| trained));
        log_probs.extend(part.iter().map(|_| if trained == 1 { -0.5 } else { 0.0 }));
        tokens.extend(part);
        response.push_str(text);
    }
    let mut metadata = Map::new();
    metadata.insert("exit_status".into(), json!("done"));
    metadata.insert("agent_metrics".into(), json!({"turns": 2}));
    Sample {
        group_index: Some(group),
        index: Some(2 * group + slot),
        rollout_id: Some(2 * group + slot),
        prompt: json!([{"role": "user", "content": "What is 6 times 7?"}]),
        tokens: tokens.into_iter().map(i64::from).collect(),
        response_length: mask.len(),
        response,
        label: json!("42"),
        reward: json!(i64::from(answer.contains("42"))),
        loss_mask: Some(mask),
        weight_versions: vec!["default".into(), "default".into()],
        rollout_log_probs: Some(log_probs),
        status: SampleStatus::Completed,
        metadata,
        prefix_cache_info: PrefixCacheInfo {
            cached_tokens: 60,
            total_prompt_tokens: 160,
        },
        ..Sample::default()
    }
}
