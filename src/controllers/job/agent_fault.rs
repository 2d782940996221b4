//! What happened in an agent's Pod that its launcher cannot know: the agent's container used up its memory, or a sandbox died.
//!
//! The kubelet says so while the Pod is still there, and a launcher waits a moment for it (docs/protocol.md section 3). A sandbox that died
//! and was started again has lost what the agent had made in it, whether or not the agent noticed.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::plan::job::{EndCause, PodEnd};
use crate::resources::job::{AGENT, SESSION};

/// The fault, if there is one.
pub(super) fn of(pod: &Pod) -> Option<PodEnd> {
    let spec = pod.spec.as_ref()?;
    let status = pod.status.as_ref()?;
    let agent = named(status.container_statuses.as_ref(), AGENT)?;
    let agent_spec = spec.containers.iter().find(|spec| spec.name == AGENT)?;
    if let Some(end) = out_of_memory(agent, agent_spec) {
        return Some(end);
    }
    let beside = spec.init_containers.iter().flatten().filter(|container| {
        container.name != SESSION && container.restart_policy.as_deref() == Some("Always")
    });
    beside
        .filter_map(|sandbox| named(status.init_container_statuses.as_ref(), &sandbox.name))
        .find_map(|sandbox| died(sandbox, agent))
}

fn out_of_memory(agent: &ContainerStatus, spec: &Container) -> Option<PodEnd> {
    let ended = agent.state.as_ref()?.terminated.as_ref()?;
    if ended.reason.as_deref() != Some("OOMKilled") {
        return None;
    }
    let limits = spec.resources.as_ref().and_then(|all| all.limits.as_ref());
    let limit = limits.and_then(|limits| limits.get("memory"));
    let limit = limit.map_or(String::new(), |limit| format!(", {}", limit.0));
    Some(PodEnd {
        cause: EndCause::OutOfMemory,
        reason: format!(
            "the container {} used up its memory limit{limit}: OOMKilled ({})",
            agent.name, ended.exit_code
        ),
    })
}

/// A sidecar that ended while the agent's container ran: at the end of a Pod it is told to end after the agent.
fn died(sandbox: &ContainerStatus, agent: &ContainerStatus) -> Option<PodEnd> {
    let (began, agent_ended) = life(agent.state.as_ref()?)?;
    let now = terminated(sandbox.state.as_ref());
    let ended = now.or_else(|| terminated(sandbox.last_state.as_ref()))?;
    let at = ended.finished_at.as_ref()?;
    // What the API has are whole seconds. One that has not been started again may have ended with its Pod.
    let is_in_time = at.0 >= began.0
        && agent_ended.is_none_or(|end| at.0 < end.0 || (at.0 == end.0 && now.is_none()));
    if !is_in_time {
        return None;
    }
    let said = ended.message.as_deref().and_then(last_line);
    let said = said.map_or(String::new(), |line| format!(": {line}"));
    Some(PodEnd {
        cause: EndCause::SandboxFailed,
        reason: format!(
            "the container {} ended while the agent ran: {} ({}){said}",
            sandbox.name,
            ended.reason.as_deref().unwrap_or("no reason"),
            ended.exit_code
        ),
    })
}

/// When a container began, and when it ended.
fn life(state: &ContainerState) -> Option<(&Time, Option<&Time>)> {
    if let Some(running) = &state.running {
        return Some((running.started_at.as_ref()?, None));
    }
    let ended = state.terminated.as_ref()?;
    Some((ended.started_at.as_ref()?, ended.finished_at.as_ref()))
}

fn terminated(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state?.terminated.as_ref()
}

fn last_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim);
    lines.rfind(|line| !line.is_empty())
}

fn named<'a>(all: Option<&'a Vec<ContainerStatus>>, name: &str) -> Option<&'a ContainerStatus> {
    all?.iter().find(|status| status.name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(seconds: u8) -> String {
        format!("2026-01-01T00:00:{seconds:02}Z")
    }

    fn running(from: u8) -> Value {
        json!({"running": {"startedAt": at(from)}})
    }

    fn ended(from: u8, until: u8, reason: &str, code: i32, message: &str) -> Value {
        json!({"terminated": {
            "startedAt": at(from), "finishedAt": at(until), "reason": reason, "exitCode": code, "message": message,
        }})
    }

    /// The fault of a Pod whose agent and sandbox are in these states.
    fn fault(agent: &Value, sandbox: &Value, sandbox_before: &Value) -> Option<(EndCause, String)> {
        let status = |name: &str, state: &Value, before: &Value| {
            json!({
                "name": name, "state": state, "lastState": before, "image": "", "imageID": "", "ready": true,
                "restartCount": i32::from(!before["terminated"].is_null()),
            })
        };
        let crashed = ended(0, 9, "Error", 1, "");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "job-agent-0-1"},
            "spec": {
                "initContainers": [
                    {"name": "shim"},
                    {"name": "session", "restartPolicy": "Always"},
                    {"name": "sandbox", "restartPolicy": "Always"},
                ],
                "containers": [{"name": "agent", "resources": {"limits": {"memory": "64Mi"}}}],
            },
            "status": {
                // Neither what ends before the agent begins nor the launcher is a sandbox.
                "initContainerStatuses": [
                    status("shim", &crashed, &json!({})),
                    status("session", &running(10), &crashed),
                    status("sandbox", sandbox, sandbox_before),
                ],
                "containerStatuses": [status("agent", agent, &json!({}))],
            },
        }))
        .unwrap();
        of(&pod).map(|end| (end.cause, end.reason))
    }

    #[test]
    fn an_agent_that_used_up_its_memory_is_told_with_the_limit_whatever_its_exit_code() {
        for code in [137, 0] {
            let agent = ended(5, 9, "OOMKilled", code, "");
            let expected =
                format!("the container agent used up its memory limit, 64Mi: OOMKilled ({code})");
            let found = fault(&agent, &running(1), &json!({}));
            assert_eq!(found, Some((EndCause::OutOfMemory, expected)));
        }
    }

    #[test]
    fn a_sandbox_that_died_while_the_agent_ran_is_told_with_its_last_line() {
        let crash = |until| ended(1, until, "Error", 7, "starting\npanic: no disk\n\n");
        let expected = Some((
            EndCause::SandboxFailed,
            "the container sandbox ended while the agent ran: Error (7): panic: no disk".to_owned(),
        ));
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        for (agent, sandbox, before) in [
            // Started again, waiting to be, or not yet.
            (running(5), running(8), crash(7)),
            (running(5), waits, crash(7)),
            (running(5), crash(7), json!({})),
            // The agent ended of it.
            (ended(5, 9, "Error", 70, ""), crash(7), json!({})),
            (ended(5, 7, "Error", 70, ""), running(8), crash(7)),
        ] {
            assert_eq!(
                fault(&agent, &sandbox, &before),
                expected,
                "{agent} {sandbox}"
            );
        }
    }

    #[test]
    fn what_ended_before_the_agent_began_or_after_it_ended_is_no_fault() {
        let well = ended(5, 9, "Completed", 0, "");
        let stopped = |until| ended(1, until, "Error", 143, "");
        for (agent, sandbox, before) in [
            (running(5), running(1), json!({})),
            (running(5), running(4), ended(1, 3, "Error", 1, "")),
            (well.clone(), stopped(9), json!({})),
            (well.clone(), stopped(11), json!({})),
            (well, running(1), json!({})),
            (
                json!({"waiting": {"reason": "PodInitializing"}}),
                running(4),
                ended(1, 3, "Error", 1, ""),
            ),
        ] {
            assert_eq!(
                fault(&agent, &sandbox, &before),
                None,
                "{agent} {sandbox} {before}"
            );
        }
    }
}
