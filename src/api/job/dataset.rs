//! Where prompts come from, and how a row becomes a sample.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plugins::PluginRef;
use crate::api::rules::{Rules, undescribed};
use crate::api::values::{ClaimPath, ConfigMapKeyRef, Parameters, SecretRef};

/// A source of prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Dataset {
    /// JSONL rows: one key of a `ConfigMap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKeyRef>,
    /// A file on a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimPath>,
    /// A file: `https://host/path` or `http://host/path`, which the driver fetches once, before the job begins; `file:///path`, which
    /// driver.template mounts; `s3://bucket/key`, `gs://bucket/key` or `az://container/key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// The rows themselves, each an object, as in {prompt: ..., label: ...}.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1000))]
    pub inline: Option<Vec<Parameters>>,
    /// A Python data source, in the plug-in host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<DatasetPlugin>,
    /// Credentials for url. For https and http: the key `token`, or the keys `username` and `password`; they are shown to the host of url alone. For object
    /// stores: keys are named as the variables that their tools know (`AWS_ACCESS_KEY_ID`, ...).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Format of the file. Default: Auto, which goes by the extension and takes what it does not know for Jsonl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DatasetFormat>,
    /// Key of the prompt in a row: a text, or a list of messages. Default: prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub prompt_key: Option<String>,
    /// Key of the label in a row: what a reward compares the answer with. When it is set, every row must have it; none: the label is taken from
    /// the key label of the rows that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub label_key: Option<String>,
    /// Key of an object in a row that agents, rewards and the output get with the sample. Default: metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub metadata_key: Option<String>,
    /// Key of the tool definitions in a row: a list in `OpenAI`'s form, or its JSON text. Default: tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub tools_key: Option<String>,
    /// Keys of images, videos and sounds in a row; none: prompts are texts only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multimodal_keys: Option<MultimodalKeys>,
    /// Rows that are used, as in `"[0:1000]"`, in quotes: from row 0 up to 1000, that one not included; either side may be empty. None: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub slice: Option<String>,
    /// Renders messages to a text with the model's chat template when rows are read. Refused with an agent, which needs the messages.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apply_chat_template: bool,
    /// Further variables of the chat template, as in `{enable_thinking: false}`.
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    pub chat_template_kwargs: Parameters,
    /// Takes the rows in another order in every epoch, drawn from seed; else in the order of the file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shuffle: bool,
    /// Seed of the order that shuffle draws. Default: 42.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seed: Option<i64>,
    /// Rows with longer prompts are left out, in tokens. Counted where the driver has the tokenizer; prompts of agents, which SGLang tokenizes, are
    /// not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_prompt_tokens: Option<i32>,
}

impl Dataset {
    /// Key of the prompt in a row.
    pub fn prompt_key(&self) -> &str {
        self.prompt_key.as_deref().unwrap_or("prompt")
    }

    /// Key of an object that travels with the sample.
    pub fn metadata_key(&self) -> &str {
        self.metadata_key.as_deref().unwrap_or("metadata")
    }

    /// Key of the tool definitions in a row.
    pub fn tools_key(&self) -> &str {
        self.tools_key.as_deref().unwrap_or("tools")
    }

    /// Whether the driver fetches it.
    pub fn is_fetched(&self) -> bool {
        let url = self.url.as_deref().unwrap_or_default();
        url.starts_with("https://") || url.starts_with("http://")
    }

    /// Seed of the order.
    pub fn seed(&self) -> i64 {
        self.seed.unwrap_or(42)
    }
}

const ONE_MEANING: &str = "a key of a row has one meaning: name different ones in promptKey, labelKey, metadataKey and toolsKey; they default to prompt, none, metadata and tools";
const PROMPT_KEY_APART: &str = "!((has(self.promptKey) ? self.promptKey : 'prompt') in \
     [has(self.metadataKey) ? self.metadataKey : 'metadata', has(self.toolsKey) ? self.toolsKey : 'tools'])";
const LABEL_KEY_APART: &str = "!has(self.labelKey) || !(self.labelKey in [has(self.promptKey) ? self.promptKey : 'prompt', \
     has(self.metadataKey) ? self.metadataKey : 'metadata', has(self.toolsKey) ? self.toolsKey : 'tools'])";
const METADATA_KEY_APART: &str = "(has(self.metadataKey) ? self.metadataKey : 'metadata') != \
     (has(self.toolsKey) ? self.toolsKey : 'tools')";

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .exactly_one(
            &["configMap", "persistentVolumeClaim", "url", "inline", "plugin"],
            "set exactly one source: configMap, persistentVolumeClaim, url, inline or plugin",
        )
        .field(
            "persistentVolumeClaim.path",
            "!has(self.persistentVolumeClaim) || has(self.persistentVolumeClaim.path)",
            "say which file on the volume: set path",
        )
        .field(
            "url",
            "!has(self.url) || self.url.matches('^(s3|gs|az|https?|file)://[^ ]+$')",
            "write url as https://host/path, http://host/path, s3://bucket/key, gs://bucket/key, az://container/key or file:///path",
        )
        .field(
            "url",
            "!has(self.url) || !self.url.matches('^https?://[^/?#]*@')",
            "remove the credentials from url, where whoever may see the job sees them: put them into a Secret and name it in secretRef",
        )
        .field(
            "secretRef",
            "!has(self.secretRef) || has(self.url)",
            "secretRef holds the credentials of url: set url, or remove secretRef",
        )
        .field(
            "slice",
            r"!has(self.slice) || self.slice.matches('^\\[[0-9]{0,15}:[0-9]{0,15}\\]$')",
            "write slice as \"[start:end]\", quoted, with row numbers from 0; either side may be empty, as in \"[0:1000]\" or \"[100:]\"",
        )
        .field(
            "slice",
            r"!has(self.slice) || !self.slice.matches('^\\[[0-9]{0,15}:[0-9]{1,15}\\]$') || int('0' + self.slice.split(':')[0].split('[')[1]) < int(self.slice.split(':')[1].split(']')[0])",
            "slice holds no row: its end is the first row that is left out, and must be greater than its start",
        )
        .field("promptKey", PROMPT_KEY_APART, ONE_MEANING)
        .field("labelKey", LABEL_KEY_APART, ONE_MEANING)
        .field("metadataKey", METADATA_KEY_APART, ONE_MEANING)
        .field(
            "chatTemplateKwargs",
            "!has(self.chatTemplateKwargs) || (has(self.applyChatTemplate) && self.applyChatTemplate)",
            "chatTemplateKwargs are for the template that applyChatTemplate renders: set applyChatTemplate: true, or remove them",
        );
}

/// Format of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum DatasetFormat {
    /// By the file's extension, else `Jsonl`.
    #[default]
    Auto,
    /// One JSON object a line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

/// Keys of media in a row: the value is a list that the placeholders in the prompt consume in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultimodalKeys {
    /// Key of the images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub image: Option<String>,
    /// Key of the videos.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub video: Option<String>,
    /// Key of the sounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub audio: Option<String>,
}

/// A Python data source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatasetPlugin {
    /// The class, as module.Name.
    pub path: PluginRef,
    /// Its arguments, handed over as args.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}
