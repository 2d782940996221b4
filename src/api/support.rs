//! What is in the API and not built yet.
//!
//! A field that is not built is refused with `NotSupported`, never ignored. This is the one list: a part that gets built is taken out
//! here, and `validate`, `local` and the controllers follow.

use super::conditions::reasons;
use super::job::{
    Agentic, Compression, Dataset, DatasetFormat, FilterType, Granularity, History, MessageMatcher,
    Output, OutputFormat, Reward, RewardType, Rollout, RolloutJobSpec, SamplePicker, TokenMode,
};
use super::pool::{Engine, SGLangPoolSpec, Tokenizer};
use super::validate::Violation;

/// Where an object is going to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// By the operator, on a cluster.
    Cluster,
    /// By `rollout-operator local`, on this machine, where directories stand for volumes. What only a cluster has (pod templates,
    /// resources, network policies, images) means nothing there, and is no reason to refuse.
    Local,
}

/// What of a job is not built.
pub fn job(spec: &RolloutJobSpec, context: Context) -> Vec<Violation> {
    let mut found = Unsupported::new("spec");
    found.when(
        spec.evaluation.is_some(),
        "evaluation",
        "evaluation between steps",
    );
    found.when(spec.trainer.is_some(), "trainer", "weights from a trainer");
    if let Some(replay) = &spec.replay {
        found.when(
            replay.routed_experts,
            "replay.routedExperts",
            "recorded routes of experts",
        );
        found.when(
            replay.indexer_top_k,
            "replay.indexerTopK",
            "recorded choices of sparse attention",
        );
    }
    found.dataset(&spec.dataset);
    found.rollout(&spec.rollout);
    let generate = &spec.generate;
    found.when(
        generate.multi_turn.is_some(),
        "generate.multiTurn",
        "the tool loop over /generate",
    );
    found.when(
        generate.benchmark.is_some(),
        "generate.benchmark",
        "answers of forced lengths",
    );
    found.when(
        generate.custom.is_some(),
        "generate.custom",
        "generate functions of one's own",
    );
    if let Some(agentic) = &generate.agentic {
        found.agentic(agentic, context);
    }
    found.reward(&spec.reward);
    if let Some(output) = &spec.output {
        found.output(output, context);
    }
    if let Some(inline) = &spec.pool {
        let mut below = Unsupported::new("spec.pool");
        below.pool(inline, context);
        found.violations.extend(below.violations);
    }
    found.violations
}

/// What of a pool is not built.
pub fn pool(spec: &SGLangPoolSpec, context: Context) -> Vec<Violation> {
    let mut found = Unsupported::new("spec");
    found.pool(spec, context);
    found.violations
}

struct Unsupported {
    at: String,
    violations: Vec<Violation>,
}

impl Unsupported {
    fn new(at: &str) -> Self {
        Self {
            at: at.to_owned(),
            violations: Vec::new(),
        }
    }

    fn when(&mut self, used: bool, field: &str, what: &str) {
        if used {
            let path = format!("{}.{field}", self.at);
            let message = format!("{}: not built yet: {what}", reasons::NOT_SUPPORTED);
            self.violations.push(Violation::error(path, message));
        }
    }

    fn dataset(&mut self, dataset: &Dataset) {
        let built = ["file://", "https://", "http://"];
        let url = dataset.url.as_ref();
        let is_stored = url.is_some_and(|url| !built.iter().any(|scheme| url.starts_with(scheme)));
        self.when(
            is_stored,
            "dataset.url",
            "a data set in an object store; use an https:// url, persistentVolumeClaim or configMap",
        );
        self.when(
            dataset.plugin.is_some(),
            "dataset.plugin",
            "a data source in Python",
        );
        self.when(
            dataset.format == Some(DatasetFormat::Parquet),
            "dataset.format",
            "Parquet; use Jsonl",
        );
        let claim = dataset.persistent_volume_claim.as_ref();
        let map = dataset.config_map.as_ref();
        for (field, file) in [
            (
                "dataset.url",
                // A signature behind the path is no extension.
                url.and_then(|url| url.split(['?', '#']).next()),
            ),
            (
                "dataset.persistentVolumeClaim.path",
                claim.and_then(|claim| claim.path.as_deref()),
            ),
            ("dataset.configMap.key", map.map(|map| map.key.as_str())),
        ] {
            let ends = [".parquet", ".gz", ".zst"];
            self.when(
                file.is_some_and(|file| ends.iter().any(|end| file.ends_with(end))),
                field,
                "a compressed or Parquet data set; use plain JSONL",
            );
        }
        self.when(
            dataset.multimodal_keys.is_some(),
            "dataset.multimodalKeys",
            "multimodal prompts",
        );
    }

    fn rollout(&mut self, rollout: &Rollout) {
        self.when(
            rollout.asynchronous.is_some(),
            "rollout.asynchronous",
            "generation across steps",
        );
        let by_sample = rollout
            .over_sampling
            .is_some_and(|over| over.granularity == Some(Granularity::Sample));
        self.when(
            by_sample,
            "rollout.overSampling.granularity",
            "over-sampling by sample; use Group",
        );
        let plugin = rollout
            .filter
            .as_ref()
            .is_some_and(|filter| filter.type_ == FilterType::Plugin);
        self.when(plugin, "rollout.filter.type", "a filter in Python");
        self.when(
            rollout.hooks.is_some(),
            "rollout.hooks",
            "hooks of the batch loop",
        );
    }

    fn agentic(&mut self, agentic: &Agentic, context: Context) {
        let at = "generate.agentic";
        self.when(
            agentic.agent.server.is_some(),
            &format!("{at}.agent.server"),
            "an agent server",
        );
        if let Some(sandbox) = &agentic.sandbox {
            let at = format!("{at}.sandbox");
            self.when(
                sandbox.template.is_some() && context == Context::Local,
                &format!("{at}.template"),
                "a sandbox beside the agent without a cluster",
            );
            self.when(
                sandbox.image_from.is_some(),
                &format!("{at}.imageFrom"),
                "an image per sample",
            );
            self.when(
                sandbox.claim_template_ref.is_some(),
                &format!("{at}.claimTemplateRef"),
                "a sandbox of kubernetes-sigs/agent-sandbox",
            );
        }
        self.when(
            agentic.tokens == Some(TokenMode::Inherited),
            &format!("{at}.tokens"),
            "Inherited tokens; use Recorded",
        );
        self.when(
            agentic
                .message_matcher
                .is_some_and(|matcher| matcher != MessageMatcher::Strict),
            &format!("{at}.messageMatcher"),
            "a matcher other than Strict",
        );
        self.when(
            agentic.history == Some(History::Tree),
            &format!("{at}.history"),
            "a tree of branches; use Linear",
        );
        self.when(
            agentic.sample_picker == Some(SamplePicker::KeepAll),
            &format!("{at}.samplePicker"),
            "samples of superseded branches; use DropRetries",
        );
        self.when(
            agentic.require_session_token,
            &format!("{at}.requireSessionToken"),
            "a session's own token on every turn",
        );
    }

    fn reward(&mut self, reward: &Reward) {
        let built = matches!(
            reward.kind(),
            RewardType::None | RewardType::Agent | RewardType::Math | RewardType::Plugin
        );
        let what = format!("reward type {:?}; use Math, Agent or Plugin", reward.kind());
        self.when(!built, "reward.type", &what);
        self.when(reward.group, "reward.group", "scoring whole groups");
        self.when(reward.boxed, "reward.boxed", "scoring only the boxed part");
    }

    fn output(&mut self, output: &Output, context: Context) {
        self.when(
            output.formats.contains(&OutputFormat::Parquet),
            "output.formats",
            "Parquet; use Jsonl",
        );
        self.when(
            output.compression == Some(Compression::Zstd),
            "output.compression",
            "compressed output; use None",
        );
        // `local` writes to its own --output, whatever the manifest says.
        let remote = output
            .url
            .as_ref()
            .is_some_and(|url| !url.starts_with("file://"));
        self.when(
            remote && context == Context::Cluster,
            "output.url",
            "output to object storage; use persistentVolumeClaim",
        );
    }

    fn pool(&mut self, pool: &SGLangPoolSpec, context: Context) {
        let names_files = pool.tokenizer.as_ref().is_some_and(Tokenizer::names_files);
        self.when(
            names_files && context == Context::Local,
            "tokenizer",
            "a tokenizer of the pool's own; use the flag --tokenizer",
        );
        self.when(
            pool.idle.is_some(),
            "idle",
            "scaling an unused pool to zero",
        );
        if let Some(engine) = &pool.engine {
            self.engine(engine);
        }
    }

    fn engine(&mut self, engine: &Engine) {
        self.when(
            engine.nodes > 1,
            "engine.nodes",
            "an engine over several nodes",
        );
        self.when(
            engine.disaggregation.is_some(),
            "engine.disaggregation",
            "prefill and decode in engines of their own",
        );
    }
}
