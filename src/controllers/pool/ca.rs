//! The CAs of external engines: read from the `ConfigMap` that the spec names, as the pool's routers mount it.
//!
//! Nobody watches users' objects: what is missing is looked for again, and what is there is read again from time to time.

use std::time::Duration;

use engine_http::Trust;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use super::status::Target;
use crate::api::conditions::reasons;
use crate::api::pool::SGLangPoolSpec;
use crate::api::values::ConfigMapKeyRef;
use crate::controllers::Error;
use crate::controllers::runtime::calls::{Calls, Effect};
use crate::plan::pool::Trouble;

/// Between two looks for what is missing.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// Between two looks at what is there.
pub(super) const RENEWED: Duration = Duration::from_mins(1);

/// The text of a pool's CAs; none: the spec names none.
pub(super) async fn of(
    calls: &Calls,
    target: &Target,
    spec: &SGLangPoolSpec,
) -> Result<Result<Option<String>, Trouble>, Error> {
    let tls = spec.external.as_ref();
    let Some(tls) = tls.and_then(|external| external.tls.as_ref()) else {
        return Ok(Ok(None));
    };
    let ConfigMapKeyRef { name, key } = &tls.ca_config_map_key_ref;
    let object = format!("ConfigMap {}/{name}", target.namespace);
    let api: Api<ConfigMap> = Api::namespaced(calls.client().clone(), &target.namespace);
    let found = calls
        .call(Effect::Read, "read", &object, api.get_opt(name))
        .await?;
    let trouble = |reason, problem: String| {
        let message = format!("spec.external.tls.caConfigMapKeyRef: {problem}");
        Ok(Err(Trouble { reason, message }))
    };
    let Some(found) = found else {
        let problem = format!("there is no {object}; create it, or name another");
        return trouble(reasons::REFERENCE_NOT_FOUND, problem);
    };
    let Some(text) = found.data.and_then(|mut data| data.remove(key)) else {
        let problem = format!("the {object} has no key {key}; add it, or name another");
        return trouble(reasons::REFERENCE_NOT_FOUND, problem);
    };
    match Trust::only(&text) {
        Ok(_) => Ok(Ok(Some(text))),
        Err(error) => trouble(
            reasons::INVALID_SPEC,
            format!("the key {key} of the {object} is no CA: {error}"),
        ),
    }
}
