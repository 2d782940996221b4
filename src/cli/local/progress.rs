//! Progress of a run on standard error: a bar on a terminal, else a line whenever something changed.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::cli::printable::printable;

/// Least time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// What the driver's `/status` says (docs/protocol.md section 5).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) phase: String,
    pub(super) step: u64,
    pub(super) progress: Progress,
    pub(super) teardown: Value,
    pub(super) result: Option<Outcome>,
    pub(super) recent_failures: Vec<Failure>,
}

/// Failures of one kind.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    pub(super) reason: String,
    pub(super) count: u64,
}

/// Counters of a run: the `progress` of a job's status.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Progress {
    pub(super) step: u64,
    pub(super) groups: Groups,
    pub(super) sessions: Sessions,
    pub(super) tokens: Tokens,
    pub(super) reward_mean: Option<String>,
}

/// Prompt groups by state.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Groups {
    pub(super) target: u64,
    pub(super) kept: u64,
    pub(super) filtered: u64,
    pub(super) in_flight: u64,
    pub(super) recycled: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
}

/// Sessions by outcome.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Sessions {
    pub(super) active: u64,
    pub(super) completed: u64,
    pub(super) truncated: u64,
    pub(super) aborted: u64,
    pub(super) agent_failed: u64,
    pub(super) infra_failed: u64,
}

/// Tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Tokens {
    pub(super) generated: u64,
    pub(super) discarded: u64,
    pub(super) cached: u64,
}

/// How a job ended.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Outcome {
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) success: bool,
}

/// Shows progress.
pub(super) struct Display {
    bar: Option<ProgressBar>,
    last_line: String,
    last_shown: Option<Instant>,
    tokens: Option<(Instant, u64)>,
    rate: f64,
    notices: Option<watch::Receiver<Option<String>>>,
}

impl Display {
    /// A bar when standard error is a terminal, else lines.
    pub(super) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(8));
            if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:32}] {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Self {
            bar,
            last_line: String::new(),
            last_shown: None,
            tokens: None,
            rate: 0.0,
            notices: None,
        }
    }

    /// Shows from now on what is said about sessions that no agent takes.
    pub(super) fn listen(&mut self, notices: watch::Receiver<Option<String>>) {
        self.notices = Some(notices);
    }

    /// What is said about sessions that no agent takes.
    pub(super) fn notice(&self) -> Option<String> {
        self.notices.as_ref()?.borrow().clone()
    }

    /// Shows what the driver says now.
    pub(super) fn show(&mut self, status: &Status) {
        let now = Instant::now();
        let generated = status.progress.tokens.generated;
        if let Some((at, before)) = self.tokens
            && now.duration_since(at) > Duration::from_millis(900)
        {
            self.rate = per_second(generated.saturating_sub(before), now.duration_since(at));
            self.tokens = Some((now, generated));
        }
        self.tokens.get_or_insert((now, generated));
        let line = summary(status, self.notice().as_deref());
        if let Some(bar) = &self.bar {
            bar.set_length(status.progress.groups.target.max(1));
            bar.set_position(status.progress.groups.kept);
            let line = printable(&line);
            bar.set_message(format!("{line}, {:.0} tokens/s", self.rate));
        } else if line != self.last_line
            && self
                .last_shown
                .is_none_or(|shown| now.duration_since(shown) >= LINE_INTERVAL)
        {
            self.last_shown = Some(now);
            say(&line);
            self.last_line = line;
        }
    }

    /// Says a line of talk beside the bar.
    pub(super) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Writes a line to standard error, with what others said made safe for a terminal; a closed standard error is nobody's loss.
pub(super) fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{}", printable(line)));
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64().max(1e-3)
}

fn summary(status: &Status, notice: Option<&str>) -> String {
    let Progress {
        step,
        groups,
        sessions,
        tokens,
        reward_mean,
    } = &status.progress;
    let mut line = format!(
        "{} step {step}: groups {}/{}",
        status.phase, groups.kept, groups.target
    );
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            line = format!("{line}, {count} {what}");
        }
    };
    add(groups.filtered, "filtered");
    add(groups.recycled, "recycled");
    add(groups.failed, "failed");
    add(groups.lost, "lost");
    // The driver counts sessions that wait as running.
    if notice.is_none() {
        add(sessions.active, "sessions running");
    }
    add(sessions.infra_failed, "lost sessions");
    add(tokens.generated, "tokens");
    if let Some(mean) = reward_mean {
        line = format!("{line}, reward {mean}");
    }
    let most = status
        .recent_failures
        .iter()
        .max_by_key(|failure| failure.count);
    if let Some(Failure { reason, count }) = most.filter(|failure| failure.count > 0) {
        let times = if *count == 1 { "time" } else { "times" };
        line = format!("{line}, {count} {times} {reason}");
    }
    if let Some(notice) = notice {
        line = format!("{line}, {notice}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_what_is_there() {
        let status: Status = serde_json::from_value(serde_json::json!({
            "phase": "Running", "attempt": 1, "step": 0, "result": null, "teardown": {},
            "progress": {"step": 0, "groups": {"target": 8, "kept": 2, "filtered": 1, "inFlight": 5}, "tokens": {"generated": 120}, "rewardMean": "0.50"},
        }))
        .unwrap();
        assert_eq!(
            summary(&status, None),
            "Running step 0: groups 2/8, 1 filtered, 120 tokens, reward 0.50"
        );
    }

    /// What a line of README says.
    fn said(line: &str) -> Status {
        let (phase, rest) = line.split_once(" step ").expect("a phase");
        let mut parts = rest.split(", ");
        let (step, groups) = parts
            .next()
            .and_then(|part| part.split_once(": groups "))
            .expect("a step");
        let (kept, target) = groups.split_once('/').expect("groups");
        let number = |text: &str| text.parse().expect("a number");
        let mut status = Status {
            phase: phase.into(),
            ..Status::default()
        };
        let progress = &mut status.progress;
        progress.step = number(step);
        progress.groups.kept = number(kept);
        progress.groups.target = number(target);
        for part in parts {
            match part.split_once(' ').expect("two words") {
                ("reward", mean) => progress.reward_mean = Some(mean.into()),
                (count, "sessions running") => progress.sessions.active = number(count),
                (count, "tokens") => progress.tokens.generated = number(count),
                (count, "recycled") => progress.groups.recycled = number(count),
                (count, "filtered") => progress.groups.filtered = number(count),
                other => panic!("{other:?} is said nowhere: {line}"),
            }
        }
        status
    }

    #[test]
    fn readme_shows_lines_as_they_are() {
        let readme = include_str!("../../../README.md");
        let lines = readme
            .lines()
            .filter(|line| line.starts_with("Running step "));
        let lines: Vec<_> = lines.collect();
        assert!(!lines.is_empty());
        for line in lines {
            assert_eq!(summary(&said(line), None), line);
        }
    }

    #[test]
    fn a_line_names_the_most_frequent_failure_and_sessions_that_wait() {
        let status = |failures: serde_json::Value| -> Status {
            serde_json::from_value(serde_json::json!({
                "phase": "Running", "progress": {"groups": {"target": 4}, "sessions": {"active": 8}}, "recentFailures": failures,
            }))
            .unwrap()
        };
        let several = status(serde_json::json!([
            {"reason": "session_lost", "message": "m", "count": 1},
            {"reason": "engine_failed", "message": "m", "count": 3},
        ]));
        assert_eq!(
            summary(&several, None),
            "Running step 0: groups 0/4, 8 sessions running, 3 times engine_failed"
        );
        let waiting = "8 sessions wait for agents (no agent pod runs; log: l)";
        assert_eq!(
            summary(&status(serde_json::json!([])), Some(waiting)),
            format!("Running step 0: groups 0/4, {waiting}")
        );
    }
}
