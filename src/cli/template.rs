//! `rollout-operator template`: finds out what a chat template does.
//!
//! Standard output is the report. Exit code 1 means that the template breaks, or that the tokenizer cannot be used.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use rollout_tokenizer::{Break, Family, Inheriting, Json, Kwargs, Tokenizer, verify};

/// Finds out what a chat template does.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Proves on generated conversations that a template only appends, or shows the smallest one that breaks it.
    ///
    /// Checked at every turn of every conversation: that the text of finished turns stays when messages are appended; that appended
    /// messages are written the same after a long conversation as after a short one; that what the template writes behind a turn's end
    /// token is what the family puts there. A session can then go on from the exact ids that an engine produced.
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Directory with tokenizer.json and the chat template.
    #[arg(long, value_name = "DIR")]
    tokenizer: PathBuf,
    /// Family of the model: default, qwen3, qwen35, qwennext, glm47, nemotron3, kimi25, kimi26, `minimax_m25`, `minimax_m27`, deepseekv32,
    /// deepseekv4 or inkling.
    #[arg(long, default_value = "default")]
    family: Family,
    /// A Jinja file in place of the tokenizer's own template.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Template arguments of the server, as a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    chat_template_kwargs: String,
    /// How many conversations are made.
    #[arg(long, default_value_t = 500)]
    conversations: usize,
    /// What they are made from: the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Command::Verify(args) = args.command;
    tokio::task::spawn_blocking(move || run_verify(&args, &mut io::stdout().lock())).await?
}

fn run_verify(args: &VerifyArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let mut tokenizer = Tokenizer::from_dir(&args.tokenizer)?;
    if let Some(path) = &args.chat_template {
        let source = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        tokenizer = tokenizer
            .with_chat_template(&source)
            .with_context(|| path.display().to_string())?;
    }
    let inheriting = Inheriting::new(Arc::new(tokenizer), args.family, &kwargs(args)?)
        .with_context(|| args.tokenizer.display().to_string())?;
    match verify(&inheriting, args.seed, args.conversations)
        .with_context(|| args.tokenizer.display().to_string())?
    {
        Ok(verified) => {
            writeln!(
                out,
                "the template only appends: {} conversations, {} turns, family {}",
                verified.conversations, verified.turns, args.family
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Err(found) => {
            show(&found, out)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn kwargs(args: &VerifyArgs) -> anyhow::Result<Kwargs> {
    let json = Json::parse(&args.chat_template_kwargs).context("--chat-template-kwargs")?;
    let fields = json
        .as_object()
        .context("--chat-template-kwargs must be an object")?;
    Ok(fields
        .iter()
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect())
}

/// The conversation, then both texts from a little before the place where they part.
fn show(found: &Break, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "the template breaks: {}", found.problem)?;
    writeln!(
        out,
        "\nconversation (tools: {}):",
        if found.tools.is_some() { "one" } else { "none" }
    )?;
    for (index, message) in found.messages.iter().enumerate() {
        let appended = if index >= found.turn_end {
            "  (appended)"
        } else {
            ""
        };
        writeln!(out, "  {message}{appended}")?;
    }
    writeln!(out, "\nthe texts part after {} bytes", found.at)?;
    for (name, text) in [("expected", &found.expected), ("actual", &found.actual)] {
        let (before, after) = text.split_at(found.at);
        let shown_before: String = before
            .chars()
            .rev()
            .take(60)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        let shown_after: String = after.chars().take(200).collect();
        writeln!(out, "  {name}: {shown_before:?} >>> {shown_after:?}")?;
    }
    Ok(())
}
