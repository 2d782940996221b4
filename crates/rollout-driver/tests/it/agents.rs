//! Agents in the test's own process: they claim sessions as a launcher does and chat as an agent does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, StatusCode};
use rollout_router::Holder;
use serde_json::{Value, json};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;

use crate::rig::Pool;

/// What an agent does with its session.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Two turns, then a result with this metadata.
    Chat(Value),
    /// One turn, then exit code 1.
    Fail,
    /// No turn at all.
    Nothing,
    /// One turn, then nothing until it is aborted; the hook succeeds.
    Hang,
    /// As `Hang`, but the hook raises.
    HangAndRaise,
    /// One turn, then nothing whatever is said.
    Deaf,
    /// As `Chat`, with reward 1, once it is let go.
    Held(watch::Receiver<bool>),
    /// One turn, then a tool that waits until so many agents are at it; then a second turn, and reward 1.
    Meet(Arc<Barrier>),
    /// Its process dies with it and others; alone it chats, with reward 1.
    DiesInCompany,
    /// The launcher cannot load the agent.
    NotLoaded,
    /// The same, and knows that it is the agent's own fault.
    Broken,
    /// One turn, then the kernel kills it for want of memory.
    OutOfMemory,
    /// The container that it works in dies.
    SandboxFailed,
    /// The pod is lost.
    PodLost,
}

/// What the agents saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Bodies of the claims.
    pub(crate) claims: Mutex<Vec<Value>>,
    /// `args` of the hooks.
    pub(crate) hooks: Mutex<Vec<Value>>,
    count: AtomicU64,
}

/// A number of agents.
pub(crate) struct Agents {
    pub(crate) seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

type Choose = dyn Fn(u64, &str) -> Behaviour + Send + Sync;

impl Agents {
    /// `choose` gets the number of the claim, counted over all agents, and the text of the prompt.
    pub(crate) fn start(
        pool: &Pool,
        job: &str,
        pods: u32,
        choose: impl Fn(u64, &str) -> Behaviour + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Seen::default());
        let choose: Arc<Choose> = Arc::new(choose);
        let mut tasks = JoinSet::new();
        for slot in 0..pods {
            let holder = Holder {
                job: job.into(),
                slot: slot.to_string(),
                generation: 1,
            };
            let pod = Pod {
                client: Client::builder().no_proxy().build().unwrap(),
                url: pool.agents_url.clone(),
                token: holder.token("secret"),
                seen: Arc::clone(&seen),
            };
            let choose = Arc::clone(&choose);
            tasks.spawn(async move { pod.run(&*choose).await });
        }
        Self {
            seen,
            _tasks: tasks,
        }
    }
}

struct Pod {
    client: Client,
    url: String,
    token: String,
    seen: Arc<Seen>,
}

impl Pod {
    /// Claims for ever: the test ends the task.
    async fn run(&self, choose: &Choose) {
        loop {
            let claim_id = format!("{:032x}", rand::random::<u128>());
            let body = json!({"claim_id": claim_id, "wait_seconds": 1});
            let answer = self.post("/agent/claim", &body).await;
            match answer {
                Some((StatusCode::OK, claim)) => {
                    let number = self.seen.count.fetch_add(1, Ordering::Relaxed);
                    self.seen.claims.lock().push(claim.clone());
                    let prompt = claim["prompt"][0]["content"].as_str().unwrap_or_default();
                    self.session(&claim, choose(number, prompt)).await;
                }
                Some((StatusCode::NO_CONTENT, _)) => {}
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn session(&self, claim: &Value, behaviour: Behaviour) {
        let base = claim["base_url"].as_str().unwrap().to_owned();
        let id = claim["session_id"].as_str().unwrap().to_owned();
        let result = match behaviour {
            Behaviour::Chat(metadata) => {
                self.chat(&base, claim, 2).await;
                json!({"outcome": "completed", "exit_code": 0, "metadata": metadata, "agent_seconds": 0.1})
            }
            Behaviour::DiesInCompany if claim["alone"] == true => {
                self.chat(&base, claim, 1).await;
                json!({"outcome": "completed", "exit_code": 0, "metadata": {"reward": 1.0}})
            }
            Behaviour::DiesInCompany => json!({
                "outcome": "infra_failed",
                "error": "the Python host ended with exit code 3",
                "metadata": {"shared_process_died": true},
            }),
            Behaviour::Held(mut go) => {
                go.wait_for(|go| *go).await.unwrap();
                self.chat(&base, claim, 1).await;
                json!({"outcome": "completed", "exit_code": 0, "metadata": {"reward": 1.0}})
            }
            Behaviour::Meet(barrier) => {
                self.chat(&base, claim, 1).await;
                barrier.wait().await;
                self.chat(&base, claim, 1).await;
                json!({"outcome": "completed", "exit_code": 0, "metadata": {"reward": 1.0}})
            }
            Behaviour::Deaf => {
                self.chat(&base, claim, 1).await;
                std::future::pending().await
            }
            Behaviour::Fail => {
                self.chat(&base, claim, 1).await;
                json!({"outcome": "agent_failed", "exit_code": 1, "error": "Traceback: boom", "metadata": {}})
            }
            Behaviour::Nothing => json!({"outcome": "completed", "exit_code": 0, "metadata": {}}),
            Behaviour::NotLoaded => json!({
                "outcome": "infra_failed",
                "error": "the agent cannot be loaded: agent.run: ModuleNotFoundError: No module named 'openai'",
                "metadata": {"agent_load_failed": true},
            }),
            Behaviour::Broken => json!({
                "outcome": "infra_failed",
                "error": "the agent cannot be loaded: agent.run: Traceback (most recent call last):\n  File \"agent.py\", line 1, in <module>\nModuleNotFoundError: No module named 'openai'",
                "metadata": {"agent_load_failed": true, "agent_load_fault": "agent"},
            }),
            Behaviour::OutOfMemory => {
                self.chat(&base, claim, 1).await;
                json!({
                    "outcome": "infra_failed", "signal": 9,
                    "error": "the memory limit of the agent's container was used up",
                    "metadata": {"out_of_memory": true},
                })
            }
            Behaviour::SandboxFailed => json!({
                "outcome": "infra_failed", "error": "the container sandbox ended", "metadata": {"sandbox_failed": true},
            }),
            Behaviour::PodLost => json!({"outcome": "infra_failed", "error": "evicted"}),
            Behaviour::Hang | Behaviour::HangAndRaise => {
                self.chat(&base, claim, 1).await;
                let Some(event) = self.abort_event(&id).await else {
                    return;
                };
                self.seen.hooks.lock().push(event["args"].clone());
                let hook = if matches!(behaviour, Behaviour::Hang) {
                    json!({"abort_id": event["abort_id"], "result": "succeeded", "error": null})
                } else {
                    json!({"abort_id": event["abort_id"], "result": "failed", "error": "hook raised"})
                };
                json!({"outcome": "aborted", "metadata": {}, "hook": hook})
            }
        };
        self.post(&format!("/agent/sessions/{id}/result"), &result)
            .await;
    }

    async fn chat(&self, base: &str, claim: &Value, turns: u32) {
        let mut messages = claim["prompt"].as_array().cloned().unwrap_or_default();
        for _ in 0..turns {
            let mut body = claim["request_kwargs"].clone();
            body["model"] = json!("default");
            body["messages"] = json!(messages);
            let url = format!("{base}/v1/chat/completions");
            let Ok(answer) = self.client.post(url).json(&body).send().await else {
                return;
            };
            let Ok(answer) = answer.json::<Value>().await else {
                return;
            };
            let Some(message) = answer.pointer("/choices/0/message") else {
                return;
            };
            messages.push(json!({"role": "assistant", "content": message["content"]}));
            messages.push(json!({"role": "user", "content": "Are you sure?"}));
        }
    }

    async fn abort_event(&self, id: &str) -> Option<Value> {
        loop {
            let url = format!("{}/agent/sessions/{id}/events?wait_seconds=2", self.url);
            let answer = self
                .client
                .get(url)
                .bearer_auth(&self.token)
                .send()
                .await
                .ok()?;
            match answer.status() {
                StatusCode::OK => return answer.json().await.ok(),
                StatusCode::NO_CONTENT => {}
                _ => return None,
            }
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Option<(StatusCode, Value)> {
        let answer = self
            .client
            .post(format!("{}{path}", self.url))
            .bearer_auth(&self.token)
            .json(body)
            .send()
            .await
            .ok()?;
        let status = answer.status();
        Some((status, answer.json().await.unwrap_or(Value::Null)))
    }
}
