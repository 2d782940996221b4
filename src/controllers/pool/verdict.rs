//! What a pool's spec is told before anything is made of it.

use rollout_router::check_engine_urls;

use crate::api::conditions::reasons;
use crate::api::pool::SGLangPool;
use crate::api::support;
use crate::api::validate::{self, Violation};
use crate::plan::pool::Trouble;

/// Why a spec is refused: everything that is wrong with it as the offline checks say it, and what is not built.
pub(super) fn on_spec(pool: &SGLangPool) -> Result<(), Trouble> {
    refuse(&faults(pool))
}

fn faults(pool: &SGLangPool) -> Vec<(&'static str, Violation)> {
    let value = serde_json::to_value(pool).unwrap_or_default();
    let invalid = validate::validate(&value)
        .into_iter()
        .map(|violation| (reasons::INVALID_SPEC, violation));
    let unbuilt = support::pool(&pool.spec, support::Context::Cluster)
        .into_iter()
        .map(|violation| (reasons::NOT_SUPPORTED, violation));
    let all = invalid.chain(unbuilt);
    let mut found: Vec<_> = all.filter(|(_, violation)| violation.is_error()).collect();
    let urls = pool.spec.external.as_ref().map(|external| &external.urls);
    if let Some(urls) = urls.filter(|urls| !urls.is_empty() && found.is_empty())
        && let Err(error) = check_engine_urls(urls)
    {
        let violation = Violation::error("spec.external.urls", error.to_string());
        found.push((reasons::INVALID_SPEC, violation));
    }
    found
}

fn refuse(found: &[(&'static str, Violation)]) -> Result<(), Trouble> {
    let Some((reason, _)) = found.first() else {
        return Ok(());
    };
    let lines: Vec<_> = found
        .iter()
        .map(|(_, violation)| violation.to_string())
        .collect();
    Err(Trouble {
        reason,
        message: lines.join("; "),
    })
}
