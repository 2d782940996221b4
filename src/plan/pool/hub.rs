//! Why an engine does not get its model from a hub, from the last words of its container.
//!
//! The words are those of the hub's client for Python (`huggingface_hub` 1 and transformers 5, as SGLang 0.5.23 has them; older ones say the same
//! sentences). Nobody else knows: the token is the engine's alone.
//!
//! Caveat: a token that may not read a model (403) ends in words of transformers that speak of a connection; then both are named.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::Trouble;
use crate::api::conditions::reasons;
use crate::api::pool::{Model, SGLangPoolSpec};
use crate::api::values::SecretKeyRef;

/// Where models are whose source names no endpoint.
const PUBLIC: &str = "https://huggingface.co";
/// How long an engine that begins again may need until it meets the same refusal: its imports take a while.
const TRIES: Duration = Duration::from_mins(2);

/// An engine's container that ended before it had started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The end of its log.
    pub words: String,
    /// Since when it runs again; none: the kubelet waits.
    pub again: Option<Timestamp>,
}

impl Ended {
    /// How long its words still count while it runs again; none: they do until it does.
    pub fn counts_for(&self, now: Timestamp) -> Option<Duration> {
        let since = now.duration_since(self.again?);
        let since = Duration::try_from(since).unwrap_or_default();
        Some(TRIES.saturating_sub(since))
    }

    fn counts(&self, now: Timestamp) -> bool {
        self.counts_for(now) != Some(Duration::ZERO)
    }
}

/// What a hub says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Gated,
    Unknown,
    Forbidden,
    NoModel,
    NoRevision,
    NotReached,
}

/// Why the engine has no model, when the hub is the reason.
pub(super) fn trouble(spec: &SGLangPoolSpec, ended: &Ended, now: Timestamp) -> Option<Trouble> {
    let model = spec.model.as_ref().filter(|model| is_from_hub(model))?;
    let refusal = refusal(&ended.words).filter(|_| ended.counts(now))?;
    Some(Trouble {
        reason: reasons::MODEL_UNAVAILABLE,
        message: message(model, refusal),
    })
}

fn is_from_hub(model: &Model) -> bool {
    let source = model.source.as_ref();
    let is_mounted = source
        .is_some_and(|source| source.persistent_volume_claim.is_some() || source.image.is_some());
    !is_mounted && !model.path.starts_with('/')
}

fn refusal(words: &str) -> Option<Refusal> {
    let has = |any: &[&str]| any.iter().any(|one| words.contains(one));
    // What is said last is said by transformers, which knows less of it; so the more telling words come first.
    let all: [(&[&str], Refusal); 6] = [
        // Of a model that is not there is said that it may be "a private or gated repo".
        (
            &["access a gated repo", "access gated repo"],
            Refusal::Gated,
        ),
        (
            &["Repository Not Found", "not a valid model identifier"],
            Refusal::NoModel,
        ),
        (
            &["Revision Not Found", "not a valid git identifier"],
            Refusal::NoRevision,
        ),
        (&["401 Client Error", "401 Unauthorized"], Refusal::Unknown),
        (&["403 Client Error", "403 Forbidden"], Refusal::Forbidden),
        (
            &["We couldn't connect to", "LocalEntryNotFoundError"],
            Refusal::NotReached,
        ),
    ];
    let found = all.into_iter().find(|(words, _)| has(words));
    found.map(|(_, refusal)| refusal)
}

fn message(model: &Model, refusal: Refusal) -> String {
    let source = model.source.as_ref();
    let hub = source.and_then(|source| source.hugging_face.as_ref());
    let endpoint = hub.and_then(|hub| hub.endpoint.as_deref());
    let endpoint = endpoint.unwrap_or(PUBLIC);
    let token = hub.and_then(|hub| hub.token_secret_ref.as_ref());
    let path = &model.path;
    let named = |SecretKeyRef { name, key }: &SecretKeyRef| {
        format!("the token of the Secret {name}, key {key}")
    };
    let token = token.map(named);
    let none = "name a token in spec.model.source.huggingFace.tokenSecretRef";
    match (refusal, token) {
        (Refusal::Gated, Some(token)) => format!(
            "the model {path} at {endpoint} is gated: {token} has to be of an account that was granted access"
        ),
        (Refusal::Gated, None) => {
            format!(
                "the model {path} at {endpoint} is gated: {none}, of an account that was granted access"
            )
        }
        (Refusal::Unknown, Some(token)) => {
            format!("{endpoint} does not know {token} (401): put a valid one there")
        }
        (Refusal::Unknown, None) => {
            format!("{endpoint} gives the model {path} to nobody without a token (401): {none}")
        }
        (Refusal::Forbidden, Some(token)) => {
            format!(
                "{token} may not read the model {path} at {endpoint} (403): give it the right to"
            )
        }
        (Refusal::Forbidden, None) => {
            format!("{endpoint} forbids to read the model {path} without a token (403): {none}")
        }
        (Refusal::NoModel, Some(token)) => format!(
            "{endpoint} shows no model {path}: correct spec.model.path, or {token}, which may not see it"
        ),
        (Refusal::NoModel, None) => format!(
            "{endpoint} shows no model {path}: correct spec.model.path, or, if it is private, {none}"
        ),
        (Refusal::NoRevision, _) => format!(
            "the model {path} at {endpoint} has no revision {}: set spec.model.revision to a branch, a tag or a commit of it",
            model.revision.as_deref().unwrap_or("main")
        ),
        (Refusal::NotReached, Some(token)) => format!(
            "the engine gets no model {path} from {endpoint}: it is not reached from the Pod, or {token} may not read the model (403)"
        ),
        (Refusal::NotReached, None) => format!(
            "the engine gets no model {path} from {endpoint}: it is not reached from the Pod, or gives nothing without a token (403)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    use super::{Ended, trouble};
    use crate::api::pool::SGLangPoolSpec;

    /// What the client says last, from a hub that answers so (`huggingface_hub` 1, transformers 5).
    const UNAUTHORIZED: &str = "huggingface_hub.errors.HfHubHTTPError: Client error '401 Unauthorized' for url 'https://hub.example/org/private/resolve/main/config.json'\n\
        The above exception was the direct cause of the following exception:\n\
        OSError: There was a specific connection error when trying to load org/private:\n\
        Client error '401 Unauthorized' for url 'https://hub.example/org/private/resolve/main/config.json'";
    const GATED: &str = "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/org/private.\n401 Client Error.\n\
        Cannot access gated repo for url https://hub.example/org/private/resolve/main/config.json.";
    const FORBIDDEN: &str = "huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: None.\nCannot access content at: https://hub.example/org/private/resolve/main/x.safetensors.\n\
        Make sure your token has the correct permissions.";
    const NOT_REACHED: &str = "OSError: We couldn't connect to 'https://hub.example' to load the files, and couldn't find them in the cached files.";
    const NO_MODEL: &str = "OSError: org/private is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'\n\
        If this is a private repository, make sure to pass a token having permission to this repo";
    const NOT_FOUND: &str = "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.\n\
        Repository Not Found for url: https://hub.example/api/models/org/private/revision/v9.\n\
        Please make sure you specified the correct `repo_id` and `repo_type`.\n\
        If you are trying to access a private or gated repo, make sure you are authenticated and your token has the required permissions.";
    const NO_REVISION: &str = "OSError: v9 is not a valid git identifier (branch name, tag name or commit id) that exists for this model name.";

    fn spec(hub: &Value) -> SGLangPoolSpec {
        let model =
            json!({"path": "org/private", "revision": "v9", "source": {"huggingFace": hub}});
        let spec = json!({"model": model, "engine": {"image": "i"}});
        serde_json::from_value(spec).unwrap()
    }

    fn with_token() -> SGLangPoolSpec {
        spec(
            &json!({"endpoint": "https://hub.example", "tokenSecretRef": {"name": "hf", "key": "token"}}),
        )
    }

    fn said(spec: &SGLangPoolSpec, words: &str) -> Option<String> {
        let ended = Ended {
            words: words.to_owned(),
            again: None,
        };
        let trouble = trouble(spec, &ended, Timestamp::UNIX_EPOCH)?;
        assert_eq!(trouble.reason, "ModelUnavailable");
        Some(trouble.message)
    }

    #[test]
    fn each_refusal_is_told_by_what_it_is() {
        for (words, expected) in [
            (
                UNAUTHORIZED,
                "https://hub.example does not know the token of the Secret hf, key token (401): put a valid one there",
            ),
            (
                GATED,
                "the model org/private at https://hub.example is gated: the token of the Secret hf, key token has to be of an account that was granted access",
            ),
            (
                FORBIDDEN,
                "the token of the Secret hf, key token may not read the model org/private at https://hub.example (403): give it the right to",
            ),
            (
                NOT_REACHED,
                "the engine gets no model org/private from https://hub.example: it is not reached from the Pod, or the token of the Secret hf, key token may not read the model (403)",
            ),
            (
                NO_MODEL,
                "https://hub.example shows no model org/private: correct spec.model.path, or the token of the Secret hf, key token, which may not see it",
            ),
            (
                NOT_FOUND,
                "https://hub.example shows no model org/private: correct spec.model.path, or the token of the Secret hf, key token, which may not see it",
            ),
            (
                NO_REVISION,
                "the model org/private at https://hub.example has no revision v9: set spec.model.revision to a branch, a tag or a commit of it",
            ),
        ] {
            assert_eq!(said(&with_token(), words).as_deref(), Some(expected));
        }
    }

    #[test]
    fn without_a_token_one_is_asked_for() {
        for words in [UNAUTHORIZED, GATED, FORBIDDEN, NO_MODEL, NOT_FOUND] {
            let told = said(&spec(&json!({})), words).unwrap();
            assert!(told.contains("https://huggingface.co"), "{told}");
            assert!(
                told.contains("name a token in spec.model.source.huggingFace.tokenSecretRef"),
                "{told}"
            );
        }
    }

    #[test]
    fn other_ends_and_other_sources_are_not_the_hubs() {
        let memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 401.00 MiB";
        assert_eq!(said(&with_token(), memory), None);
        assert_eq!(said(&with_token(), ""), None);
        let mut mounted = with_token();
        let source = json!({"persistentVolumeClaim": {"claimName": "models"}});
        mounted.model.as_mut().unwrap().source = serde_json::from_value(source).unwrap();
        assert_eq!(said(&mounted, NO_MODEL), None);
        let mut in_image = with_token();
        in_image.model.as_mut().unwrap().path = "/models/m".to_owned();
        assert_eq!(said(&in_image, NO_MODEL), None);
    }

    #[test]
    fn the_words_of_before_count_until_the_engine_has_tried_again() {
        let begun = Timestamp::UNIX_EPOCH;
        let ended = Ended {
            words: UNAUTHORIZED.to_owned(),
            again: Some(begun),
        };
        let after = |seconds| begun + SignedDuration::from_secs(seconds);
        let told = |seconds| trouble(&with_token(), &ended, after(seconds)).is_some();
        assert!(told(-5) && told(0) && told(119));
        assert!(!told(120) && !told(3600));
        assert_eq!(ended.counts_for(after(119)).unwrap().as_secs(), 1);
    }
}
