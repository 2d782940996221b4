//! Which other objects a spec names.
//!
//! One list, so that `validate` can look for them in the same files and the controllers in the cluster.

mod pod;

use serde_json::Value;

use super::job::{Dataset, RolloutJobSpec};
use super::pool::{Engine, SGLangPoolSpec};
use super::values::{
    ClaimPath, CodeSource, ConfigMapKeyRef, ConfigMapRef, HuggingFaceHub, SecretKeyRef, SecretRef,
};

/// Kind of an object that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// `SGLangPool`.
    Pool,
    /// `ConfigMap`.
    ConfigMap,
    /// `Secret`.
    Secret,
    /// `PersistentVolumeClaim`.
    Claim,
}

impl Target {
    /// Its `kind`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Pool => super::meta::POOL_KIND,
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Claim => "PersistentVolumeClaim",
        }
    }

    /// Whether people keep such objects in files, so that it is worth saying when one is not there. Volumes come from elsewhere.
    pub fn is_listed(self) -> bool {
        matches!(self, Self::Pool | Self::ConfigMap | Self::Secret)
    }
}

/// Who needs an object that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// Any run of the job.
    Always,
    /// Only a cluster: `rollout-operator local` does not read it.
    Cluster,
}

/// One object that a spec names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Path of the field that names it.
    pub path: String,
    /// Kind of the object.
    pub target: Target,
    /// Its name.
    pub name: String,
    /// Its namespace; none: that of the object that names it.
    pub namespace: Option<String>,
    /// A key that it must have.
    pub key: Option<String>,
    /// Who needs it.
    pub need: Need,
}

impl Reference {
    /// Whether variables of a process get what is in the object.
    pub fn is_variable(&self) -> bool {
        self.path.contains(".envFrom[") || self.path.contains(".valueFrom.")
    }
}

#[derive(Default)]
struct References(Vec<Reference>);

/// What a pool names.
pub fn pool(spec: &SGLangPoolSpec) -> Vec<Reference> {
    let mut found = References::default();
    found.pool(spec, "spec");
    found.0
}

/// What a job names.
pub fn job(spec: &RolloutJobSpec) -> Vec<Reference> {
    let mut found = References::default();
    if let Some(reference) = &spec.pool_ref {
        found.0.push(Reference {
            path: "spec.poolRef.name".to_owned(),
            target: Target::Pool,
            name: reference.name.clone(),
            namespace: reference.namespace.clone(),
            key: None,
            need: Need::Always,
        });
    }
    if let Some(pool) = &spec.pool {
        found.pool(pool, "spec.pool");
    }
    found.dataset(&spec.dataset, "spec.dataset");
    for (position, set) in spec.evaluation.iter().flat_map(|e| &e.datasets).enumerate() {
        found.dataset(
            &set.dataset,
            &format!("spec.evaluation.datasets[{position}].dataset"),
        );
    }
    if let Some(trainer) = &spec.trainer {
        let at = "spec.trainer.checkpointDirectory";
        found.claim_path(trainer.checkpoint_directory.as_ref(), at);
    }
    if let Some(agentic) = &spec.generate.agentic {
        let at = "spec.generate.agentic.agent";
        if let Some(function) = &agentic.agent.function {
            found.code(function.code.as_ref(), &format!("{at}.function.code"));
        }
        if let Some((at_template, template)) = agentic.agent.own_template(at) {
            let own = agentic.agent.own_container(at).map(|(at, _)| at);
            found.template(template, &at_template, own.as_deref());
        }
        let sandbox = agentic.sandbox.as_ref();
        if let Some(template) = sandbox.and_then(|sandbox| sandbox.template.as_ref()) {
            found.template(template, "spec.generate.agentic.sandbox.template", None);
        }
        if let Some(server) = &agentic.agent.server {
            found.secret_key(
                server.secret_ref.as_ref(),
                &format!("{at}.server.secretRef"),
            );
        }
    }
    if let Some(specs) = spec
        .generate
        .multi_turn
        .as_ref()
        .and_then(|turns| turns.tool_specs.as_ref())
    {
        let at = "spec.generate.multiTurn.toolSpecs.configMapKeyRef";
        found.config_map_key(specs.config_map_key_ref.as_ref(), at);
    }
    if let Some(plugins) = &spec.plugins {
        found.code(plugins.code.as_ref(), "spec.plugins.code");
        found.env(&plugins.env, "spec.plugins.env");
        if let Some(container) = &plugins.container {
            let container = Value::Object(container.0.clone());
            found.container(&container, "spec.plugins.container");
        }
    }
    if let Some(template) = &spec.driver.template {
        found.template(template, "spec.driver.template", None);
    }
    if let Some(output) = &spec.output {
        found.claim_path(
            output.persistent_volume_claim.as_ref(),
            "spec.output.persistentVolumeClaim",
        );
        found.secret(output.secret_ref.as_ref(), "spec.output.secretRef");
    }
    found.0
}

impl References {
    fn pool(&mut self, spec: &SGLangPoolSpec, at: &str) {
        if let Some(source) = spec.model.as_ref().and_then(|model| model.source.as_ref()) {
            let at = format!("{at}.model.source");
            if let Some(claim) = &source.persistent_volume_claim {
                self.claim(
                    Some(&claim.claim_name),
                    &format!("{at}.persistentVolumeClaim.claimName"),
                );
            }
            self.hub(source.hugging_face.as_ref(), &format!("{at}.huggingFace"));
        }
        if let Some(external) = &spec.external {
            let at = format!("{at}.external");
            let key = external.api_key_secret_ref.as_ref();
            self.secret_key(key, &format!("{at}.apiKeySecretRef"));
            let ca = external.tls.as_ref().map(|tls| &tls.ca_config_map_key_ref);
            self.config_map_key(ca, &format!("{at}.tls.caConfigMapKeyRef"));
        }
        if let Some(tokenizer) = &spec.tokenizer {
            let at = format!("{at}.tokenizer");
            self.config_map(tokenizer.config_map.as_ref(), &format!("{at}.configMap"));
            let claim = tokenizer.persistent_volume_claim.as_ref();
            self.claim_path(claim, &format!("{at}.persistentVolumeClaim"));
            let token = tokenizer
                .hugging_face
                .as_ref()
                .and_then(|hub| hub.token_secret_ref.as_ref());
            self.secret_key(token, &format!("{at}.huggingFace.tokenSecretRef"));
        }
        if let Some(engine) = &spec.engine {
            self.engine(engine, &format!("{at}.engine"));
        }
    }

    fn engine(&mut self, engine: &Engine, at: &str) {
        let template = engine.chat_template.as_ref().map(|t| &t.config_map_key_ref);
        self.config_map_key(template, &format!("{at}.chatTemplate.configMapKeyRef"));
        let cache = engine
            .jit_cache
            .as_ref()
            .map(|claim| claim.claim_name.as_str());
        self.claim(cache, &format!("{at}.jitCache.claimName"));
        self.secret_key(
            engine.api_key_secret_ref.as_ref(),
            &format!("{at}.apiKeySecretRef"),
        );
        self.env(&engine.env, &format!("{at}.env"));
        if let Some(sides) = &engine.disaggregation {
            self.env(
                &sides.prefill.env,
                &format!("{at}.disaggregation.prefill.env"),
            );
            self.env(
                &sides.decode.env,
                &format!("{at}.disaggregation.decode.env"),
            );
        }
        if let Some(replies) = engine.simulator.as_ref().and_then(|s| s.replies.as_ref()) {
            let at = format!("{at}.simulator.replies");
            let rows = replies
                .oracle
                .as_ref()
                .and_then(|oracle| oracle.dataset.as_ref());
            let rows = rows.map(|rows| &rows.config_map);
            self.config_map_key(rows, &format!("{at}.oracle.dataset.configMap"));
            let script = replies.script.as_ref();
            let script = script.and_then(|script| script.config_map_key_ref.as_ref());
            self.config_map_key(script, &format!("{at}.script.configMapKeyRef"));
        }
    }

    fn dataset(&mut self, dataset: &Dataset, at: &str) {
        self.config_map_key(dataset.config_map.as_ref(), &format!("{at}.configMap"));
        let claim = dataset.persistent_volume_claim.as_ref();
        self.claim_path(claim, &format!("{at}.persistentVolumeClaim"));
        self.secret(dataset.secret_ref.as_ref(), &format!("{at}.secretRef"));
    }

    fn code(&mut self, code: Option<&CodeSource>, at: &str) {
        if let Some(code) = code {
            self.config_map(code.config_map.as_ref(), &format!("{at}.configMap"));
            let claim = code.persistent_volume_claim.as_ref();
            self.claim_path(claim, &format!("{at}.persistentVolumeClaim"));
        }
    }

    fn hub(&mut self, hub: Option<&HuggingFaceHub>, at: &str) {
        if let Some(hub) = hub {
            self.secret_key(
                hub.token_secret_ref.as_ref(),
                &format!("{at}.tokenSecretRef"),
            );
            self.claim(
                hub.cache_claim_name.as_deref(),
                &format!("{at}.cacheClaimName"),
            );
        }
    }

    fn config_map(&mut self, reference: Option<&ConfigMapRef>, at: &str) {
        if let Some(reference) = reference {
            self.push(
                &format!("{at}.name"),
                Target::ConfigMap,
                &reference.name,
                None,
            );
        }
    }

    fn config_map_key(&mut self, reference: Option<&ConfigMapKeyRef>, at: &str) {
        if let Some(reference) = reference {
            self.push(at, Target::ConfigMap, &reference.name, Some(&reference.key));
        }
    }

    fn secret(&mut self, reference: Option<&SecretRef>, at: &str) {
        if let Some(reference) = reference {
            self.push(&format!("{at}.name"), Target::Secret, &reference.name, None);
        }
    }

    fn secret_key(&mut self, reference: Option<&SecretKeyRef>, at: &str) {
        if let Some(reference) = reference {
            self.push(at, Target::Secret, &reference.name, Some(&reference.key));
        }
    }

    fn claim_path(&mut self, reference: Option<&ClaimPath>, at: &str) {
        self.claim(
            reference.map(|claim| claim.claim_name.as_str()),
            &format!("{at}.claimName"),
        );
    }

    fn claim(&mut self, name: Option<&str>, at: &str) {
        if let Some(name) = name {
            self.push(at, Target::Claim, name, None);
        }
    }

    fn push(&mut self, at: &str, target: Target, name: &str, key: Option<&str>) {
        self.0.push(Reference {
            need: need(at, target),
            path: at.to_owned(),
            target,
            name: name.to_owned(),
            namespace: None,
            key: key.map(str::to_owned),
        });
    }
}

/// `local` takes engines as they are, or simulates them; directories stand for volumes, and its own flags for outputs and credentials.
fn need(at: &str, target: Target) -> Need {
    const CLUSTER: [&str; 9] = [
        ".model.source.",
        ".external.",
        ".tokenizer.",
        ".engine.chatTemplate.",
        ".engine.apiKeySecretRef",
        ".engine.env[",
        ".disaggregation.",
        "spec.output.",
        ".agent.server.",
    ];
    if target == Target::Claim || CLUSTER.iter().any(|part| at.contains(part)) {
        Need::Cluster
    } else {
        Need::Always
    }
}
