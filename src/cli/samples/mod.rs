//! `rollout-operator samples`: shows and checks training samples.
//!
//! Standard output is data: samples, or the report. Exit code 1 means that `verify` found a problem or no sample, or that `show` found none: a job
//! that ended well has some.

mod conversation;
mod nothing;
mod render;
mod show;
mod style;
mod verify;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use super::printable::printable;

/// Shows and checks training samples.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints samples readably: roles, tool calls, which tokens are trained, reward.
    Show(ShowArgs),
    /// Checks every row, count and hash of an output directory.
    ///
    /// Checked: that manifest.json names only its own files and they are all there; that their rows, groups, bytes, SHA-256, ledgers, metrics and
    /// the job's result agree; that each row has its fields, arrays of one length, masks of 0 and 1, log-probabilities that are finite, not above
    /// 0, and 0 where nothing is trained. Token ids have to be at most 2^24. If the job used the built-in tokenizer (the manifest says so),
    /// they have to be in its vocabulary, and the ids of each kept response have to decode to its text, but for 32 bytes of a stop text at
    /// its end and text with half characters.
    ///
    /// Not checked: prompts and labels against the data set; the values of log-probabilities and rewards; prompt ids against the prompt; with any other tokenizer, ids against text; and
    /// who wrote the files: somebody who changes a file and its hash in the manifest is found only by what changed. The output says
    /// which of this applied.
    #[command(verbatim_doc_comment)]
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// An output directory.
    directory: PathBuf,
    /// Only samples of this prompt group.
    #[arg(long)]
    group: Option<i64>,
    /// Only the sample with this index.
    #[arg(long)]
    index: Option<i64>,
    /// Only samples of this step.
    #[arg(long)]
    step: Option<u32>,
    /// Print at most this many samples; 0 prints all.
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Print what was generated and not kept, where the job wrote it (output.includeAll).
    #[arg(long)]
    extra: bool,
    /// Directory with the model's tokenizer.json: tells exactly which text is trained. Default: the built-in tokenizer, where it
    /// reproduces a sample's text.
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Readable text, or the rows as they are.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Colours: on a terminal when `NO_COLOR` is not set, or as said.
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// An output directory.
    directory: PathBuf,
    /// List at most this many problems; the rest is counted.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Readable text, or the report as one JSON object.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let result = tokio::task::spawn_blocking(move || match &args.command {
        Command::Show(args) => show::run(args, &mut io::stdout().lock()),
        Command::Verify(args) => verify::run(args, &mut io::stdout().lock()),
    });
    match result.await? {
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        other => other,
    }
}

/// The reader has seen enough: `samples show DIR | head` is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Talk goes to standard error; that nobody listens there is no failure.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(text));
}
