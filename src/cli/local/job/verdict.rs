//! The last words of a run: how the job ended, what there is, and where to look.

use std::process::ExitCode;

use super::{
    super::{progress::say, setup::Setup, workdir::shown},
    driving::End,
};

/// Says how a run ended, and what helps to understand it.
pub(super) fn tell(setup: &Setup, end: End, notice: Option<String>) -> anyhow::Result<ExitCode> {
    let output = shown(&setup.work.output);
    let earlier = match &end {
        End::Decided(word) => setup.earlier_word(word)?,
        _ => None,
    };
    let of_earlier = earlier.is_some().then(|| {
        format!(
            "this is the result of an earlier run in {output}; take another --output to run the job again, or remove {output}"
        )
    });
    let end = match earlier {
        Some(word) => End::Decided(Box::new(word)),
        None => end,
    };
    match end {
        End::Decided(word) if word.outcome.success => {
            if let Some(of_earlier) = of_earlier {
                say(&of_earlier);
            }
            say(&format!(
                "{}: {}",
                word.outcome.reason, word.outcome.message
            ));
            for line in word.summary(shown(&setup.work.output)) {
                say(&line);
            }
            Ok(ExitCode::SUCCESS)
        }
        End::Decided(word) => {
            let message = &word.outcome.message;
            let look = where_to_look(setup, of_earlier.or(notice), message);
            anyhow::bail!("{}: {message} ({look})", word.outcome.reason)
        }
        End::Deadline => {
            let message = "the job took longer than activeDeadlineSeconds";
            let look = where_to_look(setup, notice, message);
            anyhow::bail!("DeadlineExceeded: {message} ({look})")
        }
        End::Crashed(said) => anyhow::bail!("BackoffLimitExceeded: driver: {said}"),
        End::Interrupted => {
            say(&format!(
                "interrupted; the same command with --output {output} goes on from here"
            ));
            Ok(ExitCode::from(130))
        }
    }
}

/// What helps to understand a failure: sessions that waited in vain, what there is, and the logs of the user's own code.
fn where_to_look(setup: &Setup, notice: Option<String>, message: &str) -> String {
    let mut parts: Vec<String> = notice.into_iter().collect();
    parts.extend(setup.origin_of_rows(message));
    parts.push(format!("what was kept is in {}", shown(&setup.work.output)));
    let own_code = [
        (setup.pods.is_some(), "agents", "agent-*.log"),
        (setup.plugin_host().is_some(), "plug-ins", "plugins.log"),
    ];
    for (_, whose, log) in own_code.iter().filter(|(has_any, ..)| *has_any) {
        let path = setup.logs.join(log);
        parts.push(format!("the {whose} wrote to {}", shown(&path)));
    }
    parts.join("; ")
}
