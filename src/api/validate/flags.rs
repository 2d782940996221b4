//! Engine flags that a field stands for.
//!
//! `extraArgs` has the last word on an engine's command line, so a flag that the operator sets too would silently win over the field, or
//! break the engine. It is refused, with the field to use, in every spelling that Python's argparse takes: `--flag=value`, `--flag value`,
//! aliases, and abbreviations down to a prefix.

const PLAIN: &str = "routers, probes and the sidecar speak plain HTTP; networkPolicy says who may";

/// SGLang's flags (0.5.23) that we own, and what to do instead. All flags are in `sglang_flags.txt`.
const OWNED: &[(&str, &str)] = &[
    ("--model-path", "use model.path"),
    ("--model", "use model.path"),
    ("--served-model-name", "use model.servedName"),
    ("--revision", "use model.revision"),
    ("--tokenizer-path", "use tokenizer"),
    ("--context-length", "use engine.contextLength"),
    ("--tp-size", "use engine.parallelism.tensor"),
    ("--tensor-parallel-size", "use engine.parallelism.tensor"),
    ("--pp-size", "use engine.parallelism.pipeline"),
    (
        "--pipeline-parallel-size",
        "use engine.parallelism.pipeline",
    ),
    ("--dp-size", "use engine.parallelism.data"),
    ("--data-parallel-size", "use engine.parallelism.data"),
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
    (
        "--admin-api-key",
        "use engine.apiKeySecretRef: routers abort with that key",
    ),
    ("--ssl-keyfile", PLAIN),
    ("--ssl-certfile", PLAIN),
    ("--ssl-ca-certs", PLAIN),
    ("--ssl-keyfile-password", PLAIN),
    ("--enable-ssl-refresh", PLAIN),
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
    if flag.contains("$(") {
        return Some("write the flag's name out: a variable can be any flag");
    }
    // argparse takes any prefix that is not ambiguous. An ambiguous one fails in the engine, and no other flag is a prefix of ours.
    OWNED
        .iter()
        .find(|(owned, _)| owned.starts_with(flag))
        .map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::{OWNED, instead_of};

    /// Every flag of SGLang 0.5.23, with all its spellings in a line: what `tests/sglang/flags.py` prints, as `tests/sglang/run.sh` checks.
    const FLAGS: &str = include_str!("sglang_flags.txt");

    fn flags() -> impl Iterator<Item = Vec<&'static str>> {
        FLAGS.lines().map(|line| line.split(' ').collect())
    }

    fn is_owned(flag: &str) -> bool {
        OWNED.iter().any(|(owned, _)| *owned == flag)
    }

    #[test]
    fn a_flag_is_owned_in_all_its_spellings_or_in_none() {
        for spellings in flags() {
            let owned = spellings.iter().filter(|flag| is_owned(flag)).count();
            assert!([0, spellings.len()].contains(&owned), "{spellings:?}");
        }
        let known: Vec<_> = flags().flatten().collect();
        for (owned, _) in OWNED {
            assert!(known.contains(owned), "SGLang has no flag {owned}");
        }
    }

    #[test]
    fn no_other_flag_is_taken_for_one_of_ours() {
        for flag in flags().flatten().filter(|flag| !is_owned(flag)) {
            assert_eq!(instead_of(flag), None, "{flag}");
            assert_eq!(instead_of(&format!("{flag}=1")), None, "{flag}");
        }
    }

    /// What Python's argparse makes of a word that begins with dashes: a flag, or any beginning of it that no other flag has.
    fn argparse(word: &str) -> Option<&'static str> {
        let name = word.split('=').next().unwrap();
        let exact = flags().flatten().find(|flag| *flag == name);
        let mut starts = flags().flatten().filter(|flag| flag.starts_with(name));
        exact.or_else(|| starts.next().filter(|_| starts.next().is_none()))
    }

    #[test]
    fn every_abbreviation_that_argparse_takes_for_one_of_ours_is_refused() {
        let mut tried = 0;
        for (owned, instead) in OWNED {
            for end in 3..=owned.len() {
                let name = &owned[..end];
                for word in [name.to_owned(), format!("{name}=x"), format!("{name} x")] {
                    if argparse(word.split(' ').next().unwrap()) != Some(*owned) {
                        continue;
                    }
                    tried += 1;
                    assert_eq!(instead_of(&word), Some(*instead), "{word}");
                }
            }
        }
        assert!(tried > 500, "{tried}");
    }

    #[test]
    fn a_flags_name_is_no_variable() {
        assert!(instead_of("--$(FLAG)").is_some());
        assert!(instead_of("--$(FLAG)=1").is_some());
        assert_eq!(instead_of("--mem-fraction-static=$(SHARE)"), None);
        assert_eq!(instead_of("$(SHARE)"), None);
    }
}
