//! The command line of an engine.

use super::ENGINE_PORT;
use super::model::ModelFiles;
use crate::api::pool::{Engine, Model};

/// Variable with the engine's key, which the kubelet puts into the command line.
pub(super) const KEY_VARIABLE: &str = "ROLLOUT_ENGINE_KEY";

/// The module of SGLang's server.
pub(super) const SGLANG: [&str; 3] = ["python3", "-m", "sglang.launch_server"];

/// Arguments of SGLang (0.5.16 to 0.5.23), one word each. The user's come last.
pub(super) fn sglang(
    engine: &Engine,
    model: &Model,
    files: &ModelFiles,
    chat_template: Option<&str>,
) -> Vec<String> {
    let mut flags = Flags(Vec::new());
    flags.set("model-path", &files.path);
    let served = model.served_name.as_ref().unwrap_or(&model.path);
    flags.set("served-model-name", served);
    if files.is_from_hub() {
        flags.some("revision", model.revision.as_ref());
    }
    // The default of SGLang is the loopback address, which no other Pod reaches.
    flags.set("host", "0.0.0.0");
    flags.set("port", &ENGINE_PORT.to_string());
    flags.switch("enable-metrics");
    let split = engine.parallelism.unwrap_or_default();
    flags.above_one("tp-size", split.tensor);
    flags.above_one("pp-size", split.pipeline);
    flags.above_one("dp-size", split.data);
    if split.data_attention {
        // 0.5.23 has a flag of its own for this and takes the old spelling; 0.5.16 knows the old one only.
        flags.switch("enable-dp-attention");
    }
    flags.above_one("ep-size", split.expert);
    flags.some("context-length", engine.context_length.as_ref());
    flags.some("tool-call-parser", engine.tool_call_parser.as_ref());
    flags.some("reasoning-parser", engine.reasoning_parser.as_ref());
    flags.some("chat-template", chat_template.as_ref());
    if engine.api_key_secret_ref.is_some() {
        flags.0.push(format!("--api-key=$({KEY_VARIABLE})"));
    }
    flags.0.extend(engine.extra_args.iter().cloned());
    flags.0
}

struct Flags(Vec<String>);

impl Flags {
    fn switch(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
    }

    fn set(&mut self, name: &str, value: &str) {
        self.0.push(format!("--{name}={}", literal(value)));
    }

    fn some(&mut self, name: &str, value: Option<&impl ToString>) {
        if let Some(value) = value {
            self.set(name, &value.to_string());
        }
    }

    fn above_one(&mut self, name: &str, value: i32) {
        if value > 1 {
            self.set(name, &value.to_string());
        }
    }
}

/// A text that the kubelet does not take for a reference to a variable.
pub(super) fn literal(value: &str) -> String {
    value.replace("$(", "$$(")
}
