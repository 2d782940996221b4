//! Who has the tokenizer's files: a simulated engine mounts what the pool names, a real one has them with its model. Its sidecar serves them.

use super::{SIDECAR_PORT, model};
use crate::api::pool::{SGLangPoolSpec, Tokenizer};
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Rendering, names};

/// Where a simulated engine has them.
const TOKENIZER: &str = "/etc/rollout/tokenizer";

/// Whether the engines' sidecars have the files. A model in the engine's own image is out of their reach, and what a real engine's pool
/// names beside the model is the driver's alone.
pub(crate) fn served_by_engines(spec: &SGLangPoolSpec) -> bool {
    let Some(engine) = &spec.engine else {
        return false;
    };
    let named = named_files(spec);
    if engine.simulator.is_some() {
        return named.is_some();
    }
    let model = spec.model.as_ref().filter(|_| named.is_none());
    model.is_some_and(|model| model::files(model).mounted.is_some())
}

/// What the pool names instead of the engine's own files.
pub(crate) fn named_files(spec: &SGLangPoolSpec) -> Option<&Tokenizer> {
    spec.tokenizer.as_ref().filter(|files| files.names_files())
}

/// Where they serve them: the name has an address for every engine.
pub(crate) fn tokenizer_url(pool: &str, namespace: &str, rendering: &Rendering) -> String {
    let host = rendering.service_host(&names::engines(pool), namespace);
    format!("http://{host}:{SIDECAR_PORT}/tokenizer")
}

/// The files in a simulated engine's Pod, and their directory.
pub(super) fn mounted(spec: &SGLangPoolSpec) -> Option<(Mounted, String)> {
    let files = spec.tokenizer.as_ref()?;
    if let Some(files) = &files.config_map {
        let source = volumes::config_map(&files.name);
        let mounted = Mounted::read_only("tokenizer", TOKENIZER, source);
        return Some((mounted, TOKENIZER.to_owned()));
    }
    let place = files.persistent_volume_claim.as_ref()?;
    let source = volumes::read_only_claim(&place.claim_name);
    let mounted = Mounted::read_only("tokenizer", TOKENIZER, source);
    let directory = volumes::below(TOKENIZER, place.path.as_deref());
    Some((mounted, directory))
}
