//! Names that other programs have for our fields: flags of Miles, sampling parameters of SGLang and OpenAI.
//!
//! Only names that "did you mean" does not find, or takes for another field. docs/miles-flags.md has them all.

/// The field that a name of another program stands for, as a path below `spec`.
pub(super) fn field_of(name: &str) -> Option<&'static str> {
    let plain: String = name
        .trim_start_matches('-')
        .chars()
        .filter(|c| !"_-".contains(*c))
        .flat_map(char::to_lowercase)
        .collect();
    ALIASES
        .iter()
        .find(|(alias, _)| *alias == plain)
        .map(|(_, field)| *field)
}

/// In lower case, without separators.
const ALIASES: &[(&str, &str)] = &[
    ("rolloutbatchsize", "rollout.batchSize"),
    ("nsamplesperprompt", "rollout.samplesPerPrompt"),
    ("n", "rollout.samplesPerPrompt"),
    ("overbatchsize", "rollout.overSampling.batchSize"),
    ("oversamplingbatchsize", "rollout.overSampling.batchSize"),
    ("numrollout", "rollout.steps"),
    ("dynamicsamplingfilterpath", "rollout.filter"),
    ("dynamicsampling", "rollout.filter"),
    ("partialrollout", "rollout.partial.enabled"),
    (
        "maskoffpolicyinpartialrollout",
        "rollout.partial.maskOffPolicy",
    ),
    (
        "sglangserverconcurrency",
        "rollout.concurrency.requestsPerEngine",
    ),
    ("timeout", "rollout.requestTimeoutSeconds"),
    ("maxtokens", "sampling.maxNewTokens"),
    ("maxcompletiontokens", "sampling.maxNewTokens"),
    ("rolloutmaxresponselen", "sampling.maxNewTokens"),
    ("rollouttemperature", "sampling.temperature"),
    ("rollouttopp", "sampling.topP"),
    ("rollouttopk", "sampling.topK"),
    ("rolloutstop", "sampling.stop"),
    ("rolloutstoptokenids", "sampling.stopTokenIds"),
    ("rolloutskipspecialtokens", "sampling.skipSpecialTokens"),
    ("rolloutmaxcontextlen", "maxContextTokens"),
    ("rolloutmaxpromptlen", "dataset.maxPromptTokens"),
    ("rolloutshuffle", "dataset.shuffle"),
    ("rolloutseed", "dataset.seed"),
    ("inputkey", "dataset.promptKey"),
    ("toolkey", "dataset.toolsKey"),
    ("promptdata", "dataset.url"),
    ("rmtype", "reward.type"),
    ("customrmpath", "reward.plugin.path"),
    ("grouprm", "reward.group"),
    ("rewardkey", "reward.key"),
    ("maxseqlen", "generate.agentic.maxSequenceTokens"),
    (
        "customagentfunctionpath",
        "generate.agentic.agent.function.path",
    ),
    ("customgeneratefunctionpath", "generate.custom.plugin"),
];

/// `seed` is a parameter of sampling to OpenAI; the order of rows has one too.
pub(super) fn beside(parent: &str, name: &str) -> Option<&'static str> {
    (parent == "spec.sampling" && name == "seed").then_some("samplingSeed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd;

    #[test]
    fn every_alias_stands_for_a_field_that_there_is() {
        let definition = crd::job();
        let spec = &crd::schema(&definition)["properties"]["spec"];
        for (alias, field) in ALIASES {
            let found = field
                .split('.')
                .fold(spec, |schema, name| &schema["properties"][name]);
            assert!(found.is_object(), "{alias}: {field}");
        }
        assert_eq!(
            field_of("--over-sampling-batch-size"),
            Some("rollout.overSampling.batchSize")
        );
    }
}
