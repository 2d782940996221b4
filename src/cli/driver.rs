//! `rollout-operator driver`.

use std::path::PathBuf;
use std::process::ExitCode;

use rollout_driver::config::DriverConfig;
use rollout_driver::error::DriverError;
use rollout_driver::run::Driver;
use rollout_engine::Reason;
use serde_json::json;

/// Exit code of a run that was interrupted: undecided, a later start continues.
const INTERRUPTED: u8 = 143;

/// Runs the driver of one job.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The driver's configuration, a JSON file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Also run the teardown ladder and end when standard input closes: then whoever started this is gone.
    #[arg(long)]
    exit_with_stdin: bool,
}

/// Runs the sub-command: 0 for a decided job, 143 when it was interrupted.
///
/// What no other start could mend decides the job too: whoever starts drivers again after a failure leaves this one.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = DriverConfig::load(&args.config)?;
    let stop = super::agent::stop_on_signal()?;
    if args.exit_with_stdin {
        super::agent::stop_with_stdin(&stop);
    }
    let driver = match Driver::start_until(config, &stop).await {
        Ok(driver) => driver,
        Err(DriverError::Stopped) => return Ok(ExitCode::from(INTERRUPTED)),
        Err(error) => return failed(error),
    };
    super::data::line(json!({ "status_url": driver.status_url() }))?;
    let result = match driver.run(stop).await {
        Ok(result) => result,
        Err(error) => return failed(error),
    };
    tracing::info!(reason = ?result.reason, message = result.message, "the driver ends");
    Ok(match result.reason {
        Reason::Interrupted => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    })
}

fn failed(error: DriverError) -> anyhow::Result<ExitCode> {
    if error.unusable().is_none() {
        return Err(error.into());
    }
    super::report(&error.into());
    Ok(ExitCode::SUCCESS)
}
