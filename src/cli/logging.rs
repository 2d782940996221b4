//! Logs: standard error, filtered by `ROLLOUT_LOG` (a level, or `target=level,...`), as lines or with `ROLLOUT_LOG_FORMAT=json` as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Sets up logging for this process. `level` holds when `ROLLOUT_LOG` is not set.
pub(super) fn init(level: &str) {
    let filter = EnvFilter::try_from_env("ROLLOUT_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let done = if std::env::var("ROLLOUT_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().try_init()
    } else {
        builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init()
    };
    // A second subscriber is refused: that is a test, which has its own.
    drop(done);
}
