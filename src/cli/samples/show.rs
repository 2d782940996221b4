//! `rollout-operator samples show`.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use rollout_driver::output::{self, Manifest, StepEntry};
use rollout_session::Sample;
use rollout_tokenizer::Tokenizer;

use super::nothing;
use super::render::{self, Decoder};
use super::style::Style;
use super::{Format, ShowArgs, say};

pub(super) fn run(args: &ShowArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let directory = args.directory.display();
    let (manifest, nothing) = read(args)?;
    let Some(manifest) = manifest.filter(keeps_samples) else {
        say(&nothing);
        return Ok(ExitCode::FAILURE);
    };
    let steps: Vec<_> = manifest
        .steps
        .iter()
        .filter(|entry| args.step.is_none_or(|step| entry.step == step))
        .collect();
    if steps.is_empty() {
        let finished: Vec<_> = manifest
            .steps
            .iter()
            .map(|entry| entry.step.to_string())
            .collect();
        bail!(
            "{directory} has no such step; finished: {}",
            finished.join(", ")
        );
    }
    let no_color = std::env::var_os("NO_COLOR");
    let style = Style::choose(
        args.color,
        no_color.as_deref(),
        std::io::stdout().is_terminal(),
    );
    let mut shown = Shown {
        decoder: decoder(args)?,
        style,
        printed: 0,
        passed: 0,
    };
    for entry in steps {
        show_step(args, entry, &mut shown, out)?;
    }
    out.flush()?;
    if shown.passed > 0 {
        say(&format!("{} more; --limit 0 prints all", shown.passed));
    }
    if shown.printed == 0 {
        say("no sample matches");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The manifest, and what is to be said when no samples are in it.
fn read(args: &ShowArgs) -> anyhow::Result<(Option<Manifest>, String)> {
    if let Some(manifest) = Manifest::read(&args.directory)? {
        let job = Some(&manifest.job);
        let nothing = nothing::of(&args.directory, job, manifest.result.as_ref());
        return Ok((Some(manifest), nothing));
    }
    // Without a manifest only the verifier knows whose directory it is.
    let report = output::verify(&args.directory, 0)?;
    let nothing = nothing::of(&args.directory, report.job.as_ref(), None);
    Ok((None, nothing))
}

fn keeps_samples(manifest: &Manifest) -> bool {
    let written = |entry: &StepEntry| {
        entry.samples.rows > 0 || entry.extra.as_ref().is_some_and(|extra| extra.rows > 0)
    };
    manifest.steps.iter().any(written)
}

struct Shown {
    decoder: Decoder,
    style: Style,
    printed: usize,
    /// Samples that match, beyond the limit.
    passed: usize,
}

fn decoder(args: &ShowArgs) -> anyhow::Result<Decoder> {
    Ok(match &args.tokenizer {
        Some(directory) => Decoder::Given(Tokenizer::from_dir(directory)?),
        None => Decoder::Guessed(Tokenizer::builtin()?),
    })
}

fn show_step(
    args: &ShowArgs,
    entry: &StepEntry,
    shown: &mut Shown,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let file = match (&entry.extra, args.extra) {
        (_, false) => &entry.samples,
        (Some(extra), true) => extra,
        (None, true) => return Ok(()),
    };
    let path = args.directory.join(&file.file);
    let expected = file.rows;
    let Some(file) = file.open(&args.directory)? else {
        bail!("{} is missing, but the manifest names it", path.display());
    };
    let mut rows = 0;
    for (line, row) in (1_u64..).zip(BufReader::new(file).lines()) {
        let row = row.with_context(|| format!("cannot read {}:{line}", path.display()))?;
        rows = line;
        let sample: Sample = serde_json::from_str(&row)
            .with_context(|| format!("{}:{line} is no sample", path.display()))?;
        let wanted = |filter: Option<i64>, value: Option<i64>| filter.is_none() || filter == value;
        if !wanted(args.group, sample.group_index) || !wanted(args.index, sample.index) {
            continue;
        }
        if args.limit > 0 && shown.printed == args.limit {
            shown.passed += 1;
            continue;
        }
        match args.format {
            Format::Json => writeln!(out, "{row}")?,
            Format::Text => write!(
                out,
                "{}",
                render::sample(&sample, &shown.decoder, shown.style)
            )?,
        }
        shown.printed += 1;
    }
    if rows != expected {
        bail!(
            "{} has {rows} rows, the manifest says {expected}: `samples verify` tells what else is wrong",
            path.display()
        );
    }
    Ok(())
}
