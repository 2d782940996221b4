//! `SGLangPool`: SGLang engines that serve one model, started by us or running already.

mod disaggregation;
mod engine;
mod external;
mod model;
mod router;
mod simulator;
mod status;
mod tokenizer;
mod upkeep;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::Rules;
use super::values::int;

pub use disaggregation::{Disaggregation, DisaggregationSide};
pub use engine::{ChatTemplate, Engine, Parallelism};
pub use external::{External, ExternalService, ExternalTls};
pub use model::{ImageSource, Model, ModelClaim, ModelSource, PullPolicy};
pub use router::{Router, RoutingPolicy};
pub use simulator::{
    Fault, FaultKind, Lengths, Oracle, OracleDataset, Profile, Replies, Script, Simulator,
    WordRange,
};
pub use status::{EngineStatus, PoolDisplay, SGLangPoolStatus};
pub use tokenizer::Tokenizer;
pub use upkeep::{Idle, PauseMode, PoolNetworkPolicy, Update, Weights};

/// SGLang engines that serve one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules)]
#[kube(
    group = "rollout-operator.dev",
    version = "v1alpha1",
    kind = "SGLangPool",
    plural = "sglangpools",
    singular = "sglangpool",
    shortname = "sgp",
    category = "rollouts",
    namespaced,
    status = "SGLangPoolStatus",
    derive = "PartialEq",
    doc = "SGLang engines that serve one model: started by the operator, or running already.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Engines","type":"string","jsonPath":".status.display.engines","description":"ready / desired"}"#,
    printcolumn = r#"{"name":"Weights","type":"string","jsonPath":".status.display.weights"}"#,
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.model.path","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct SGLangPoolSpec {
    /// Stops every engine and the router; the objects stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// Who reconciles the pool; another value than rollout-operator.dev/controller means hands off. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,
    /// What the engines serve. Simulated and external engines may leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// Engines that are wanted; also set through the scale sub-resource (kubectl scale). Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// Engines that run already. They are probed, never restarted or scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Where driver and router get tokenizer files; none: from the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// Engines that the operator starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The pool's own front door, for trainers and other clients; none: no router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Router>,
    /// How engines are replaced when the spec changes. Default: one more at a time, none less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
    /// Which weights an engine must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
    /// When an unused pool scales to zero; none: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// Other namespaces whose jobs may use the pool by poolRef; none: only its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 63)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub allowed_namespaces: Vec<String>,
    /// Who may reach the engines, besides the routers and drivers of bound jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<PoolNetworkPolicy>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .exactly_one(
            &["engine", "external"],
            "set exactly one of engine (engines that the operator starts) and external (engines that run already)",
        )
        .field(
            "model",
            "has(self.model) || has(self.external) || (has(self.engine) && has(self.engine.simulator))",
            "set model.path to a hub id or to the directory in the mounted source: an engine must know what to serve",
        )
        .field(
            "managedBy",
            "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy cannot change: delete the object and create it again with the other value",
        )
        .field(
            "update",
            "!has(self.update) || !has(self.external)",
            "external engines are never restarted: remove update",
        )
        .field(
            "idle",
            "!has(self.idle) || !has(self.external)",
            "external engines are never scaled: remove idle",
        );
}
