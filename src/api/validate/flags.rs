//! Engine flags that a field stands for.
//!
//! `extraArgs` has the last word on an engine's command line, so a flag that the operator sets too would silently win over the field, or
//! break the engine. It is refused, with the field to use, in every spelling that Python's argparse takes: `--flag=value`, `--flag value`,
//! aliases, and abbreviations down to a prefix.

/// SGLang's flags (0.5.23) that we own, and what to use instead.
const OWNED: &[(&str, &str)] = &[
    ("--model-path", "model.path"),
    ("--model", "model.path"),
    ("--served-model-name", "model.servedName"),
    ("--revision", "model.revision"),
    ("--tokenizer-path", "tokenizer"),
    ("--context-length", "engine.contextLength"),
    ("--tp-size", "engine.parallelism.tensor"),
    ("--tensor-parallel-size", "engine.parallelism.tensor"),
    ("--tp", "engine.parallelism.tensor"),
    ("--pp-size", "engine.parallelism.pipeline"),
    ("--pipeline-parallel-size", "engine.parallelism.pipeline"),
    ("--pp", "engine.parallelism.pipeline"),
    ("--dp-size", "engine.parallelism.data"),
    ("--data-parallel-size", "engine.parallelism.data"),
    ("--dp", "engine.parallelism.data"),
    ("--attn-dp-size", "engine.parallelism.data"),
    ("--attention-data-parallel-size", "engine.parallelism.data"),
    ("--enable-dp-attention", "engine.parallelism.dataAttention"),
    ("--ep-size", "engine.parallelism.expert"),
    ("--expert-parallel-size", "engine.parallelism.expert"),
    ("--ep", "engine.parallelism.expert"),
    ("--nnodes", "engine.nodes"),
    ("--node-rank", "engine.nodes"),
    ("--dist-init-addr", "engine.nodes"),
    ("--nccl-init-addr", "engine.nodes"),
    ("--tool-call-parser", "engine.toolCallParser"),
    ("--reasoning-parser", "engine.reasoningParser"),
    ("--chat-template", "engine.chatTemplate"),
    ("--api-key", "engine.apiKeySecretRef"),
    ("--disaggregation-mode", "engine.disaggregation"),
    ("--disaggregation-bootstrap-port", "engine.disaggregation"),
    (
        "--host",
        "nothing: the engine listens where its Service expects it",
    ),
    (
        "--port",
        "nothing: the engine listens where its Service expects it",
    ),
    (
        "--weight-version",
        "nothing: weight versions are set through the pool's router",
    ),
    ("--enable-metrics", "nothing: it is always on"),
    ("--grpc-mode", "nothing: routers and drivers speak HTTP"),
    ("--smg-grpc-mode", "nothing: routers and drivers speak HTTP"),
    (
        "--skip-tokenizer-init",
        "nothing: chat needs the engine's tokenizer",
    ),
    (
        "--config",
        "the fields of engine: a file could set what they set",
    ),
];

/// The field that stands for an argument, if there is one.
pub(super) fn owner(argument: &str) -> Option<&'static str> {
    let flag = argument.split(['=', ' ']).next().unwrap_or_default();
    if !flag.starts_with("--") || flag.len() < 3 {
        return None;
    }
    // argparse takes any prefix that is not ambiguous. An ambiguous one fails in the engine, and no other flag is a prefix of ours.
    OWNED
        .iter()
        .find(|(owned, _)| owned.starts_with(flag))
        .map(|(_, field)| *field)
}
