//! Engine flags that a field stands for.
//!
//! `extraArgs` has the last word on an engine's command line, so a flag that the operator sets too would silently win over the field, or
//! break the engine. It is refused, with the field to use, in every spelling that Python's argparse takes: `--flag=value`, `--flag value`,
//! aliases, and abbreviations down to a prefix.

/// SGLang's flags (0.5.23) that we own, and what to do instead.
const OWNED: &[(&str, &str)] = &[
    ("--model-path", "use model.path"),
    ("--model", "use model.path"),
    ("--served-model-name", "use model.servedName"),
    ("--revision", "use model.revision"),
    ("--tokenizer-path", "use tokenizer"),
    ("--context-length", "use engine.contextLength"),
    ("--tp-size", "use engine.parallelism.tensor"),
    ("--tensor-parallel-size", "use engine.parallelism.tensor"),
    ("--tp", "use engine.parallelism.tensor"),
    ("--pp-size", "use engine.parallelism.pipeline"),
    (
        "--pipeline-parallel-size",
        "use engine.parallelism.pipeline",
    ),
    ("--pp", "use engine.parallelism.pipeline"),
    ("--dp-size", "use engine.parallelism.data"),
    ("--data-parallel-size", "use engine.parallelism.data"),
    ("--dp", "use engine.parallelism.data"),
    ("--attn-dp-size", "use engine.parallelism.data"),
    (
        "--attention-data-parallel-size",
        "use engine.parallelism.data",
    ),
    (
        "--enable-dp-attention",
        "use engine.parallelism.dataAttention",
    ),
    ("--ep-size", "use engine.parallelism.expert"),
    ("--expert-parallel-size", "use engine.parallelism.expert"),
    ("--ep", "use engine.parallelism.expert"),
    ("--nnodes", "use engine.nodes"),
    ("--node-rank", "use engine.nodes"),
    ("--dist-init-addr", "use engine.nodes"),
    ("--nccl-init-addr", "use engine.nodes"),
    ("--tool-call-parser", "use engine.toolCallParser"),
    ("--reasoning-parser", "use engine.reasoningParser"),
    ("--chat-template", "use engine.chatTemplate"),
    ("--api-key", "use engine.apiKeySecretRef"),
    ("--disaggregation-mode", "use engine.disaggregation"),
    (
        "--disaggregation-bootstrap-port",
        "use engine.disaggregation",
    ),
    ("--host", "the engine listens where its Service expects it"),
    ("--port", "the engine listens where its Service expects it"),
    (
        "--weight-version",
        "weight versions are set through the pool's router",
    ),
    ("--enable-metrics", "it is always on"),
    ("--grpc-mode", "routers and drivers speak HTTP"),
    ("--smg-grpc-mode", "routers and drivers speak HTTP"),
    ("--skip-tokenizer-init", "chat needs the engine's tokenizer"),
    (
        "--config",
        "use the fields of engine: a file could set what they set",
    ),
];

/// What to do instead of an argument that we own.
pub(super) fn instead_of(argument: &str) -> Option<&'static str> {
    let flag = argument.split(['=', ' ']).next().unwrap_or_default();
    if !flag.starts_with("--") || flag.len() < 3 {
        return None;
    }
    // argparse takes any prefix that is not ambiguous. An ambiguous one fails in the engine, and no other flag is a prefix of ours.
    OWNED
        .iter()
        .find(|(owned, _)| owned.starts_with(flag))
        .map(|(_, instead)| *instead)
}
