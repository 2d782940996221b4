//! The job's rows: where they come from, and what is said when they cannot be used.

use engine_http::Trust;
use tokio_util::sync::CancellationToken;

use crate::config::{DriverConfig, dataset_config, seconds};
use crate::dataset::{Dataset, DatasetError, Source};
use crate::download::{self, Credentials, Downloaded, Limits, Wanted};
use crate::error::DriverError;

/// Puts a file in place of a URL in the configuration.
///
/// # Errors
/// The file did not come, or `stop` was cancelled before it had.
pub(super) async fn fetch(
    mut config: DriverConfig,
    stop: &CancellationToken,
) -> Result<DriverConfig, DriverError> {
    let url = config.spec.dataset.url.clone();
    let is_wanted = |url: &String| config.dataset_path.is_none() && download::is_fetched(url);
    let Some(url) = url.filter(is_wanted) else {
        return Ok(config);
    };
    // Large, and rarely there: not a part of every start.
    let fetching = Box::pin(here(&config, &url));
    let fetching = stop.run_until_cancelled(fetching);
    let Downloaded { path, digest } = fetching.await.ok_or(DriverError::Stopped)??;
    config.dataset_path = Some(path);
    config.dataset_digest = Some(digest);
    Ok(config)
}

async fn here(config: &DriverConfig, url: &str) -> Result<Downloaded, DriverError> {
    let directory = config.ledger_dir.join(download::DIRECTORY);
    // Whoever has the file needs no credentials.
    if let Some(here) = download::fetched(url, &directory).await {
        return Ok(here);
    }
    let credentials = config.dataset_credentials_dir.as_deref();
    let wanted = Wanted {
        url,
        credentials: credentials.map(Credentials::read).transpose()?,
        directory: &directory,
        trust: Trust::public(),
    };
    let patience = seconds(config.timeouts.dataset_seconds);
    Ok(download::fetch(wanted, Limits::with_patience(patience)).await?)
}

/// Opens them. Blocking.
pub(super) fn open(config: &DriverConfig) -> Result<Dataset, DriverError> {
    let mut dataset = dataset_config(&config.spec, config.dataset_path.as_deref())?;
    if let (Some(digest), Some(url), Source::File(path)) = (
        &config.dataset_digest,
        &config.spec.dataset.url,
        &dataset.source,
    ) {
        dataset.source = Source::Fetched {
            name: download::name(url),
            path: path.clone(),
            digest: digest.clone(),
        };
    }
    Dataset::open(&dataset).map_err(|error| unusable(config, error))
}

/// A path in this container means nothing to who wrote the claim's name or the URL.
fn unusable(config: &DriverConfig, source: DatasetError) -> DriverError {
    let dataset = &config.spec.dataset;
    if let Some(file) = &dataset.persistent_volume_claim {
        return DriverError::DatasetOnClaim {
            claim: file.claim_name.clone(),
            path: file.path.clone(),
            source,
        };
    }
    match &dataset.url {
        Some(_) if config.dataset_digest.is_some() => DriverError::DatasetOfUrl { source },
        _ => DriverError::Dataset(source),
    }
}
