//! The Pod of one slot and generation.

use rollout_operator::api::meta::{annotations, labels};
use rollout_operator::resources::job::{self, AgentPod};
use serde_json::{Value, json};

use super::{Case, arguments, container, env, mount, rendering, spec_job, volume};

fn pod(case: &Case) -> Value {
    case.agent(3, 7).value["spec"].clone()
}

#[test]
fn a_pod_is_named_by_slot_and_generation() {
    let agent = spec_job("everything").agent(3, 7);
    assert_eq!(agent.name(), "everything-agent-3-7");
    assert_eq!(
        (agent.label(labels::SLOT), agent.label(labels::GENERATION)),
        (Some("3"), Some("7"))
    );
    assert_eq!(agent.label(labels::ATTEMPT), Some("1"));
    assert_eq!(agent.label("team"), Some("rl"));
    assert_eq!(
        agent.annotation(annotations::ARGO_IGNORE_RESTART_POLICY),
        Some("true")
    );
}

#[test]
fn a_function_runs_in_the_users_image_below_our_shim() {
    let pod = pod(&spec_job("everything"));
    let agent = container(&pod, "agent");
    assert_eq!(agent["image"], "python:3.13-slim");
    assert_eq!(agent["command"], json!(["/rollout/rollout-operator"]));
    let expected = [
        "agent",
        "exec",
        "--directory=/run/rollout",
        "--inherit-environment",
        "--grace-period-seconds=90",
        "--function=agent.run",
        "--python=python3",
        "--code=/code/agents/one",
        "--parameters=/etc/rollout/settings/parameters.json",
    ];
    assert_eq!(arguments(agent), expected);
    assert_eq!(
        volume(&pod, "agent-code")["persistentVolumeClaim"],
        json!({"claimName": "code", "readOnly": true})
    );
    // The settings hold more than what the agent may see.
    assert_eq!(
        volume(&pod, "parameters")["configMap"]["items"],
        json!([{"key": "parameters.json", "path": "parameters.json"}])
    );
    assert_eq!(env(agent, "LEVEL")["value"], "hard");
    assert_eq!(env(agent, "ROLLOUT_SLOT")["value"], "3");
    assert_eq!(pod["runtimeClassName"], "gvisor");
    let settings = spec_job("everything").objects().settings;
    assert_eq!(
        settings.value["data"]["parameters.json"],
        r#"{"max_steps":30}"#
    );
}

#[test]
fn a_containers_command_is_run_by_the_shim() {
    let case = spec_job("any-harness");
    let pod = pod(&case);
    let agent = container(&pod, "agent");
    assert_eq!(agent["command"], json!(["/rollout/rollout-operator"]));
    assert!(
        arguments(agent).ends_with(&["--", "/agent", "--model", "default", "-v"]),
        "{agent}"
    );
    assert_eq!(
        (&agent["image"], &agent["workingDir"]),
        (&json!("my/agent:1"), &json!("/work"))
    );
    assert_eq!(case.objects().overruled, [] as [&str; 0]);
}

#[test]
fn the_launcher_claims_from_the_jobs_router() {
    let pod = pod(&spec_job("everything"));
    let session = container(&pod, "session");
    let expected = [
        "agent",
        "launch",
        "--router=http://everything-sessions.rl.svc.cluster.local.:8080",
        "--claim-token-env=ROLLOUT_CLAIM_TOKEN",
        "--until-stopped",
        "--directory=/run/rollout",
        "--concurrent=8",
        "--sessions-per-pod=0",
        "--grace-period-seconds=90",
        "--pod-word-seconds=3",
    ];
    assert_eq!(arguments(session), expected);
    assert_eq!(session["restartPolicy"], "Always");
    assert_eq!(session["image"], rendering().image);
    let directory = mount(session, "/run/rollout")["name"].clone();
    assert_eq!(
        mount(container(&pod, "agent"), "/run/rollout")["name"],
        directory
    );
    let hook = 40;
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() >= 2 * hook);
}

#[test]
fn nothing_restarts_and_nothing_sees_the_launcher() {
    let pod = pod(&spec_job("everything"));
    assert_eq!(pod["restartPolicy"], "Never");
    for field in [
        "automountServiceAccountToken",
        "enableServiceLinks",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
    ] {
        assert_eq!(pod[field], false, "{field}");
    }
    let agent = container(&pod, "agent");
    assert_eq!(mount(agent, "/rollout")["readOnly"], true);
}

#[test]
fn users_code_runs_restricted_unless_the_template_says_otherwise() {
    let restricted = pod(&spec_job("everything"));
    let context = &restricted["securityContext"];
    assert_eq!(
        (&context["runAsNonRoot"], &context["runAsUser"]),
        (&json!(true), &json!(65532))
    );
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
    let agent = &container(&restricted, "agent")["securityContext"];
    assert_eq!(
        agent,
        &json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    // A root that was asked for is let in: else the Pod would not start.
    let root = pod(&spec_job("any-harness"));
    assert_eq!(
        (
            &root["securityContext"]["runAsUser"],
            &root["securityContext"]["runAsNonRoot"]
        ),
        (&json!(0), &json!(false))
    );
}

#[test]
fn launcher_and_agent_are_one_user() {
    let mut case = spec_job("everything");
    case.job.spec["generate"]["agentic"]["agent"]["function"]["template"]["spec"]["containers"]
        [0]["securityContext"] = json!({"runAsUser": 1000});
    let pod = pod(&case);
    assert_eq!(
        container(&pod, "session")["securityContext"]["runAsUser"],
        1000
    );
    assert_eq!(
        container(&pod, "session")["securityContext"]["readOnlyRootFilesystem"],
        true
    );
}

#[test]
fn sandboxes_start_before_the_agent_and_are_started_again() {
    let pod = pod(&spec_job("any-harness"));
    let first: Vec<_> = pod["initContainers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(first, ["shim", "session", "fetch", "database"]);
    let database = container(&pod, "database");
    assert_eq!(database["restartPolicy"], "Always");
    for name in ["fetch", "database"] {
        let context = &container(&pod, name)["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{name}");
    }
    assert!(container(&pod, "fetch").get("restartPolicy").is_none());
    // Nothing of the session's is in the sandbox.
    assert_eq!(
        database["volumeMounts"],
        json!([{"name": "work", "mountPath": "/shared"}])
    );
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
}

#[test]
fn a_sample_names_its_image() {
    let case = spec_job("everything");
    let wanted = AgentPod {
        slot: 0,
        generation: 1,
        image: Some("registry.example/swe/1:a"),
    };
    let (object, _) = case.with(1, |input| job::agent_pod(input, wanted)).unwrap();
    assert_eq!(
        container(&object.value["spec"], "agent")["image"],
        "registry.example/swe/1:a"
    );
}

#[test]
fn an_agent_without_a_command_is_refused_before_anything_runs() {
    let mut case = spec_job("any-harness");
    let template = &mut case.job.spec["generate"]["agentic"]["agent"]["container"]["template"];
    template["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("command");
    let refused = case.refusal();
    assert_eq!(refused.reason(), "InvalidSpec");
    assert!(
        refused
            .to_string()
            .contains("containers[agent].command: is required"),
        "{refused}"
    );
}

#[test]
fn a_command_on_abort_is_not_built() {
    let mut case = spec_job("any-harness");
    case.job.spec["generate"]["agentic"]["agent"]["container"]["abort"] =
        json!({"exec": {"command": ["/stop"]}});
    assert_eq!(case.refusal().reason(), "NotSupported");
}

#[test]
fn an_agent_gets_no_token_of_an_account_whatever_its_audience() {
    let mut case = spec_job("everything");
    case.job.spec["generate"]["agentic"]["agent"]["function"]["template"]["spec"]["volumes"] = json!([{"name": "sneaky", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}]);
    let refused = case.refusal();
    assert!(
        refused
            .to_string()
            .contains("function.template.spec.volumes[sneaky]"),
        "{refused}"
    );
}
