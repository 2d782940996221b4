//! A pool's status, from what its Deployments and Pods say.

use k8s_openapi::jiff::Timestamp;
use rollout_operator::api::conditions::reasons;
use rollout_operator::api::pool::{EngineStatus, SGLangPoolSpec, SGLangPoolStatus};
use rollout_operator::plan::pool::external::{Abilities, Answer, ExternalEngine, Facts, Survey};
use rollout_operator::plan::pool::{
    Built, Ended, EnginePod, EngineState, Observed, Trouble, Verdict, Workload, look_again, status,
};
use serde_json::{Value, json};

fn spec(value: Value) -> SGLangPoolSpec {
    serde_json::from_value(value).unwrap()
}

fn two() -> SGLangPoolSpec {
    spec(json!({"replicas": 2, "engine": {"simulator": {}}}))
}

fn workload(replicas: i32, ready: i32, updated: i32) -> Workload {
    Workload {
        is_current: true,
        replicas,
        ready,
        updated,
        failure: None,
    }
}

fn engine(name: &str, revision: &str) -> EnginePod {
    EnginePod {
        name: name.to_owned(),
        url: Some(format!("http://{name}:30000")),
        sidecar_url: Some(format!("http://{name}:30001")),
        ready: true,
        revision: Some(revision.to_owned()),
        trouble: None,
        ended: None,
        state: None,
    }
}

fn applied() -> Verdict {
    Verdict::Applied(Built {
        revision: Some("new".to_owned()),
        selector: Some("a=b".to_owned()),
        endpoint: None,
        overruled: Vec::new(),
    })
}

fn made(spec: &SGLangPoolSpec, verdict: &Verdict, observed: &Observed) -> SGLangPoolStatus {
    let before = SGLangPoolStatus::default();
    status(spec, &before, 3, verdict, observed, Timestamp::UNIX_EPOCH)
}

/// `type=status/reason` of each condition, but for those that are False as expected.
fn shown(status: &SGLangPoolStatus) -> Vec<String> {
    let conditions = status.conditions.iter();
    conditions
        .filter(|condition| condition.status != "False" || condition.reason != reasons::AS_EXPECTED)
        .map(|condition| {
            format!(
                "{}={}/{}",
                condition.type_, condition.status, condition.reason
            )
        })
        .collect()
}

#[test]
fn a_pool_is_ready_when_every_engine_is_of_the_current_spec_and_ready() {
    let full = Observed {
        engines: Some(workload(2, 2, 2)),
        pods: vec![engine("b", "new"), engine("a", "new")],
        bound_jobs: 3,
        ..Observed::default()
    };
    let ready = made(&two(), &applied(), &full);
    assert_eq!(
        shown(&ready),
        [
            "Ready=True/AsExpected",
            "Available=True/AsExpected",
            "EnginesReady=True/AsExpected"
        ]
    );
    assert_eq!(ready.observed_generation, 3);
    assert_eq!(
        (ready.replicas, ready.ready_replicas, ready.updated_replicas),
        (2, 2, 2)
    );
    assert_eq!(ready.display.unwrap().engines.as_deref(), Some("2/2"));
    assert_eq!(ready.bound_jobs, 3);
    let names: Vec<_> = ready
        .engines
        .iter()
        .map(|engine| engine.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    for (replicas, ready, updated) in [(2, 1, 2), (3, 2, 2), (2, 2, 1), (1, 1, 1), (0, 0, 0)] {
        let observed = Observed {
            engines: Some(workload(replicas, ready, updated)),
            ..Observed::default()
        };
        let status = made(&two(), &applied(), &observed);
        assert!(
            shown(&status).contains(&"Ready=False/Starting".to_owned()),
            "{replicas} {ready} {updated}"
        );
        assert!(shown(&status).contains(&"Reconciling=True/Progressing".to_owned()));
    }
    // What a Deployment says about the spec before says nothing.
    let mut stale = full;
    stale.engines.as_mut().unwrap().is_current = false;
    assert!(shown(&made(&two(), &applied(), &stale)).contains(&"Ready=False/Starting".to_owned()));
}

#[test]
fn a_rolling_update_names_the_revision_that_still_runs() {
    let observed = Observed {
        engines: Some(workload(3, 2, 1)),
        pods: vec![engine("a", "old"), engine("b", "new")],
        ..Observed::default()
    };
    let status = made(&two(), &applied(), &observed);
    assert_eq!(status.current_revision.as_deref(), Some("old"));
    assert_eq!(status.update_revision.as_deref(), Some("new"));
}

#[test]
fn what_a_person_must_do_is_told_and_not_together_with_progress() {
    let trouble = |reason, message: &str| Trouble {
        reason,
        message: message.to_owned(),
    };
    let mut stuck = engine("a", "new");
    stuck.ready = false;
    stuck.trouble = Some(trouble(reasons::IMAGE_PULL_FAILED, "no such image"));
    let pull = Observed {
        engines: Some(workload(2, 1, 2)),
        pods: vec![stuck.clone(), engine("b", "new")],
        ..Observed::default()
    };
    let mut refused = Observed {
        engines: Some(workload(0, 0, 0)),
        ..Observed::default()
    };
    refused.engines.as_mut().unwrap().failure =
        Some("pods is forbidden: exceeded quota: q".to_owned());
    let invalid = Verdict::Refused(trouble(reasons::INVALID_SPEC, "spec.x: no"));
    for (verdict, observed, reason) in [
        (applied(), &pull, "ImagePullFailed"),
        (applied(), &refused, "QuotaExceeded"),
        (invalid, &Observed::default(), "InvalidSpec"),
    ] {
        let shown = shown(&made(&two(), &verdict, observed));
        assert!(
            shown.contains(&format!("Stalled=True/{reason}")),
            "{shown:?}"
        );
        assert!(
            shown.contains(&format!("Ready=False/{reason}")),
            "{shown:?}"
        );
        assert!(
            !shown.iter().any(|line| line.starts_with("Reconciling")),
            "{shown:?}"
        );
    }
    // One that is left from before, while all that are wanted are there.
    let over = Observed {
        engines: Some(workload(2, 2, 2)),
        pods: vec![stuck, engine("b", "new"), engine("c", "new")],
        ..Observed::default()
    };
    assert!(shown(&made(&two(), &applied(), &over)).contains(&"Ready=True/AsExpected".to_owned()));
}

#[test]
fn a_suspended_pool_is_suspended_once_its_last_engine_is_gone() {
    let suspended = spec(json!({"suspend": true, "replicas": 2, "engine": {"simulator": {}}}));
    let leaving = Observed {
        engines: Some(workload(0, 0, 0)),
        pods: vec![engine("a", "new")],
        ..Observed::default()
    };
    let status = made(&suspended, &applied(), &leaving);
    assert!(
        !shown(&status)
            .iter()
            .any(|line| line.starts_with("Suspended=True"))
    );
    let gone = Observed {
        engines: Some(workload(0, 0, 0)),
        ..Observed::default()
    };
    let lines = shown(&made(&suspended, &applied(), &gone));
    assert!(
        lines.contains(&"Suspended=True/Suspended".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"Ready=False/Suspended".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn a_router_that_is_asked_for_counts() {
    let with_router =
        spec(json!({"replicas": 1, "engine": {"simulator": {}}, "router": {"replicas": 1}}));
    let mut observed = Observed {
        engines: Some(workload(1, 1, 1)),
        ..Observed::default()
    };
    let lines = shown(&made(&with_router, &applied(), &observed));
    assert!(
        lines.contains(&"RouterReady=False/Starting".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"Ready=False/Starting".to_owned()),
        "{lines:?}"
    );
    observed.router = Some(workload(1, 1, 1));
    let lines = shown(&made(&with_router, &applied(), &observed));
    assert!(
        lines.contains(&"RouterReady=True/AsExpected".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"Ready=True/AsExpected".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn a_status_is_bounded_and_the_same_for_the_same_world() {
    let pods: Vec<_> = (0..1000)
        .map(|number| engine(&format!("e-{number:04}"), "new"))
        .collect();
    let mut shuffled = pods.clone();
    shuffled.reverse();
    let of = |pods: Vec<EnginePod>| {
        let observed = Observed {
            engines: Some(workload(2, 2, 2)),
            pods,
            ..Observed::default()
        };
        made(&two(), &applied(), &observed)
    };
    let status = of(pods);
    assert_eq!(status.engines.len(), 64);
    assert_eq!(status, of(shuffled));
    // A second look at the same world changes nothing, the clock included.
    let observed = Observed {
        engines: Some(workload(2, 2, 2)),
        ..Observed::default()
    };
    let first = made(&two(), &applied(), &observed);
    let later = Timestamp::from_second(1000).unwrap();
    assert_eq!(
        self::status(&two(), &first, 3, &applied(), &observed, later),
        first
    );
}

fn foreign() -> SGLangPoolSpec {
    spec(json!({
        "model": {"path": "Qwen/Qwen3-8B"},
        "external": {"urls": ["http://a:1", "http://b:1"]},
    }))
}

fn facts(served: &str, weights: &str) -> Facts {
    Facts {
        model: Some("/models/8b".to_owned()),
        served_name: Some(served.to_owned()),
        weight_version: Some(weights.to_owned()),
        paused: false,
    }
}

fn tested(served: &str, weights: &str) -> Answer {
    let abilities = Abilities {
        version: Some("0.5.23".to_owned()),
        ..Abilities::default()
    };
    Answer::Tested(facts(served, weights), abilities)
}

fn surveyed(a: Answer, b: Answer) -> Observed {
    let engine = |url: &str, answer| ExternalEngine {
        url: url.to_owned(),
        answer,
    };
    Observed {
        external: Some(Survey {
            engines: vec![engine("http://b:1", b), engine("http://a:1", a)],
            ..Survey::default()
        }),
        ..Observed::default()
    }
}

/// The message of a condition.
fn said<'a>(status: &'a SGLangPoolStatus, about: &str) -> &'a str {
    let mut conditions = status.conditions.iter();
    &conditions
        .find(|condition| condition.type_ == about)
        .unwrap()
        .message
}

const MODEL: &str = "Qwen/Qwen3-8B";

#[test]
fn external_engines_that_answer_as_they_should_are_a_ready_pool() {
    let observed = surveyed(tested(MODEL, "default"), tested(MODEL, "default"));
    let status = made(&foreign(), &applied(), &observed);
    assert_eq!(
        shown(&status),
        [
            "Ready=True/AsExpected",
            "Available=True/AsExpected",
            "EnginesReady=True/AsExpected"
        ]
    );
    assert_eq!((status.replicas, status.ready_replicas), (2, 2));
    let display = status.display.unwrap();
    assert_eq!(display.engines.as_deref(), Some("2/2"));
    assert_eq!(display.weights.as_deref(), Some("default"));
    assert_eq!(
        json!(status.engines[0]),
        json!({
            "name": "http://a:1", "url": "http://a:1", "ready": true, "weightVersion": "default", "version": "0.5.23", "paused": false,
        })
    );
    assert_eq!(status.engines[1].url, "http://b:1");
}

#[test]
fn an_external_engine_that_does_not_answer_is_waited_for() {
    let silent = Answer::Silent("takes no connection".to_owned());
    let status = made(
        &foreign(),
        &applied(),
        &surveyed(tested(MODEL, "1"), silent),
    );
    assert_eq!(
        shown(&status),
        [
            "Ready=False/Starting",
            "Reconciling=True/Progressing",
            "Available=True/AsExpected",
            "EnginesReady=False/Starting"
        ]
    );
    assert_eq!(
        said(&status, "Ready"),
        "1 of 2 engines are ready; http://b:1 takes no connection"
    );
    assert!(!status.engines[1].ready);
    // Nobody was asked yet.
    let nobody = made(&foreign(), &applied(), &Observed::default());
    assert!(shown(&nobody).contains(&"Ready=False/Starting".to_owned()));
}

#[test]
fn what_external_engines_lack_is_named_and_a_person_must_act() {
    let lacking = Answer::Tested(
        facts(MODEL, "default"),
        Abilities {
            version: Some("0.5.9".to_owned()),
            lacks: vec!["it has no /abort_request".to_owned()],
            remark: None,
        },
    );
    let other = tested("meta/other", "default");
    let status = made(&foreign(), &applied(), &surveyed(lacking, other));
    assert_eq!(
        shown(&status),
        [
            "Ready=False/EngineUnsuitable",
            "Stalled=True/EngineUnsuitable",
            "Available=False/Starting",
            "EnginesReady=False/Starting"
        ]
    );
    assert_eq!(
        said(&status, "Stalled"),
        "http://a:1 (SGLang 0.5.9): it has no /abort_request; http://b:1 (SGLang 0.5.23): it serves meta/other, spec.model is Qwen/Qwen3-8B"
    );
}

#[test]
fn the_model_of_an_engine_is_known_until_its_weights_are_updated() {
    for (served, weights, ready) in [
        ("/checkpoints/7", "7", 2),
        ("/checkpoints/7", "default", 1),
        (MODEL, "default", 2),
    ] {
        let observed = surveyed(tested(MODEL, "default"), tested(served, weights));
        let status = made(&foreign(), &applied(), &observed);
        assert_eq!(status.ready_replicas, ready, "{served} {weights}");
    }
    let mixed = surveyed(tested(MODEL, "6"), tested(MODEL, "7"));
    let display = made(&foreign(), &applied(), &mixed).display.unwrap();
    assert_eq!(display.weights.as_deref(), Some("Mixed"));
    // A pool that does not say what it serves takes any.
    let any = spec(json!({"external": {"urls": ["http://a:1"]}}));
    let observed = surveyed(tested("x", "default"), tested("y", "default"));
    assert_eq!(made(&any, &applied(), &observed).ready_replicas, 2);
}

#[test]
fn a_suspended_pool_of_external_engines_stops_its_router_alone() {
    let mut suspended = foreign();
    suspended.suspend = true;
    let mut observed = surveyed(tested(MODEL, "1"), tested(MODEL, "1"));
    observed.router = Some(workload(1, 1, 1));
    let stopping = made(&suspended, &applied(), &observed);
    assert!(
        !shown(&stopping)
            .iter()
            .any(|line| line.starts_with("Suspended=True"))
    );
    observed.router = None;
    let lines = shown(&made(&suspended, &applied(), &observed));
    assert!(
        lines.contains(&"Suspended=True/Suspended".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"Ready=False/Suspended".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn a_message_about_many_engines_names_some() {
    let engines = (0..50)
        .map(|number| ExternalEngine {
            url: format!("http://e-{number:02}:1"),
            answer: Answer::Tested(Facts::default(), Abilities::default()),
        })
        .chain((50..100).map(|number| ExternalEngine {
            url: format!("http://e-{number:02}:1"),
            answer: Answer::Silent("takes no connection".to_owned()),
        }));
    let observed = Observed {
        external: Some(Survey {
            trouble: Some("sglang:30000 has no address".to_owned()),
            engines: engines.collect(),
            ..Survey::default()
        }),
        ..Observed::default()
    };
    let status = made(&foreign(), &applied(), &observed);
    assert_eq!(status.engines.len(), 64);
    assert_eq!(
        said(&status, "EnginesReady"),
        "50 of 100 engines are ready; sglang:30000 has no address; http://e-50:1 takes no connection; http://e-51:1 takes no connection; http://e-52:1 takes no \
         connection; http://e-53:1 takes no connection; and 46 more"
    );
}

#[test]
fn what_sidecars_say_is_in_the_list_and_all_of_the_list_are_asked() {
    let state = |version: &str, paused| EngineState {
        weight_version: Some(version.to_owned()),
        version: Some("0.5.23".to_owned()),
        paused,
        trouble: None,
    };
    let mut pods = vec![engine("a", "new"), engine("b", "new"), engine("c", "new")];
    pods[2].ready = false;
    let asked = rollout_operator::plan::pool::asked(&pods);
    let wanted = [
        ("a", "http://a:30001"),
        ("b", "http://b:30001"),
        ("c", "http://c:30001"),
    ];
    let wanted = wanted.map(|(name, url)| (name.to_owned(), url.to_owned()));
    assert_eq!(asked, wanted.into());
    pods[0].state = Some(state("7", false));
    pods[1].state = Some(state("7", true));
    let of = |pods: &[EnginePod]| {
        let observed = Observed {
            engines: Some(workload(3, 2, 3)),
            pods: pods.to_vec(),
            ..Observed::default()
        };
        made(
            &spec(json!({"replicas": 3, "engine": {"simulator": {}}})),
            &applied(),
            &observed,
        )
    };
    let status = of(&pods);
    assert_eq!(status.display.unwrap().weights.as_deref(), Some("7"));
    let told = |engine: &EngineStatus| {
        let EngineStatus {
            name,
            weight_version,
            version,
            paused,
            ..
        } = engine.clone();
        (name, weight_version, version, paused)
    };
    let seven = || (Some("7".to_owned()), Some("0.5.23".to_owned()));
    let listed: Vec<_> = status.engines.iter().map(told).collect();
    assert_eq!(
        listed,
        [
            ("a".to_owned(), seven().0, seven().1, false),
            ("b".to_owned(), seven().0, seven().1, true),
            ("c".to_owned(), None, None, false),
        ]
    );
    pods[1].state = Some(state("8", false));
    assert_eq!(of(&pods).display.unwrap().weights.as_deref(), Some("Mixed"));
}

#[test]
fn as_many_sidecars_are_asked_as_engines_are_listed() {
    let pods: Vec<_> = (0..100)
        .map(|number| engine(&format!("e-{number:03}"), "new"))
        .collect();
    let asked = rollout_operator::plan::pool::asked(&pods);
    assert_eq!(asked.len(), 64);
    assert!(asked.contains_key("e-063") && !asked.contains_key("e-064"));
}

#[test]
fn a_key_that_is_missing_and_a_pod_that_cannot_ask_with_it_need_a_person() {
    let mut observed = Observed {
        external: Some(Survey {
            missing: Some("the engines' key cannot be read: the Secret k, key key".to_owned()),
            ..Survey::default()
        }),
        ..Observed::default()
    };
    let status = made(&foreign(), &applied(), &observed);
    assert!(shown(&status).contains(&"Stalled=True/ReferenceNotFound".to_owned()));
    assert!(said(&status, "Stalled").contains("the Secret k"));
    observed.external = Some(Survey::default());
    observed.survey_trouble = Some(Trouble {
        reason: reasons::IMAGE_PULL_FAILED,
        message: "the image x of the container survey cannot be pulled".to_owned(),
    });
    let status = made(&foreign(), &applied(), &observed);
    assert!(shown(&status).contains(&"Stalled=True/ImagePullFailed".to_owned()));
}

#[test]
fn a_controller_that_has_just_started_writes_what_was_known() {
    let again = |spec: &SGLangPoolSpec, before: &SGLangPoolStatus, observed: &Observed| {
        status(spec, before, 3, &applied(), observed, Timestamp::UNIX_EPOCH)
    };
    let good = Answer::Tested(
        Facts {
            weight_version: Some("7".to_owned()),
            ..Facts::default()
        },
        Abilities::default(),
    );
    let survey = |answer: &Answer| Observed {
        external: Some(Survey {
            engines: vec![ExternalEngine {
                url: "http://a:1".to_owned(),
                answer: answer.clone(),
            }],
            ..Survey::default()
        }),
        ..Observed::default()
    };
    let before = made(&foreign(), &applied(), &survey(&good));
    assert_eq!(before.ready_replicas, 1);
    let unasked = [survey(&Answer::Unasked), Observed::default()];
    for observed in unasked {
        assert_eq!(again(&foreign(), &before, &observed), before);
    }
    let silent = survey(&Answer::Silent("takes no connection".to_owned()));
    assert_eq!(again(&foreign(), &before, &silent).ready_replicas, 0);

    let own = |state: Option<EngineState>| Observed {
        engines: Some(workload(1, 1, 1)),
        pods: vec![EnginePod {
            state,
            ..engine("a", "new")
        }],
        ..Observed::default()
    };
    let state = EngineState {
        weight_version: Some("7".to_owned()),
        version: Some("0.5.23".to_owned()),
        paused: true,
        trouble: None,
    };
    let one = spec(json!({"engine": {"simulator": {}}}));
    let before = made(&one, &applied(), &own(Some(state)));
    assert_eq!(again(&one, &before, &own(None)), before);
    // Its sidecar was asked, and is silent.
    let silent = again(&one, &before, &own(Some(EngineState::default())));
    assert_eq!(silent.engines[0].weight_version, None);
    assert_eq!(silent.display.unwrap().weights, None);
}

#[test]
fn an_engine_without_its_model_or_checkpoint_stalls_its_pool_until_it_takes_work() {
    let hub = json!({"path": "org/private", "source": {"huggingFace": {"tokenSecretRef": {"name": "hf", "key": "token"}}}});
    let one = spec(json!({"model": hub, "engine": {"image": "i"}}));
    let of = |ready: i32, pod: EnginePod| {
        let observed = Observed {
            engines: Some(workload(1, ready, 1)),
            pods: vec![pod],
            ..Observed::default()
        };
        made(&one, &applied(), &observed)
    };
    let refused = EnginePod {
        ready: false,
        ended: Some(Ended {
            words: "401 Client Error.".to_owned(),
            again: None,
        }),
        ..engine("a", "new")
    };
    let status = of(0, refused.clone());
    assert!(shown(&status).contains(&"Stalled=True/ModelUnavailable".to_owned()));
    assert_eq!(
        said(&status, "Stalled"),
        "https://huggingface.co does not know the token of the Secret hf, key token (401): put a valid one there"
    );
    let status = of(1, engine("a", "new"));
    assert!(shown(&status).contains(&"Ready=True/AsExpected".to_owned()));

    let lost = EnginePod {
        ready: false,
        state: Some(EngineState {
            trouble: Some("it cannot load its checkpoint /c/12: gone".to_owned()),
            ..EngineState::default()
        }),
        ..engine("a", "new")
    };
    let status = of(0, lost);
    assert!(shown(&status).contains(&"Stalled=True/ModelUnavailable".to_owned()));
    assert_eq!(
        said(&status, "Stalled"),
        "a: it cannot load its checkpoint /c/12: gone"
    );
    // One that tries again is looked at once more, though nothing changes.
    let again = |since| EnginePod {
        ended: Some(Ended {
            words: String::new(),
            again: since,
        }),
        ..refused.clone()
    };
    let next = |pod| look_again(&[pod], Timestamp::UNIX_EPOCH);
    assert_eq!(next(again(None)), None);
    assert!(next(again(Some(Timestamp::UNIX_EPOCH))).is_some());
    assert_eq!(next(engine("a", "new")), None);
}
