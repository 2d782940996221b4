//! `rollout-operator crds`: the custom resource definitions.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::api::{crd, yaml_text};

/// Prints the custom resource definitions.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Writes one file per definition to this directory, instead of both to standard output.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let definitions = crd::all().map(|(file, definition)| (file, yaml_text::write(&definition)));
    match args.dir {
        Some(dir) => write(&dir, &definitions).await?,
        None => print(&definitions)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn write(dir: &std::path::Path, definitions: &[(&str, String)]) -> anyhow::Result<()> {
    tokio::fs::create_dir_all(dir)
        .await
        .with_context(|| format!("cannot make the directory {}", dir.display()))?;
    for (file, text) in definitions {
        let path = dir.join(file);
        tokio::fs::write(&path, text)
            .await
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn print(definitions: &[(&str, String)]) -> anyhow::Result<()> {
    definitions
        .iter()
        .try_for_each(|(_, text)| super::data::text_as_it_is(format_args!("---\n{text}")))
}
