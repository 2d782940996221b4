//! The example agents against a simulated engine: real Python, the real OpenAI client, real sockets.

mod manifests;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Config, Script, Simulator};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_mins(1);

const SCRIPT: &str = r"
- match: 'buys (?<notebooks>[0-9]+) notebooks'
  role: user
  reply: {tool_calls: [{name: calculator, arguments: {expression: '$notebooks*3'}}]}
- match: 'nonsense'
  role: user
  reply: {tool_calls: [{name: calculator, arguments: {expression: 'open(1)'}}]}
- match: 'slow'
  role: user
  reply: {content: 'this takes very long, word by word, and nobody waits for the end of it'}
- match: '(?s)(?<said>.*)'
  role: tool
  reply: {content: 'It is \boxed{$said}.'}
";

/// Runs Python code with the examples importable against a simulated engine; `URL` in the code is the session's address.
/// Returns what the code printed, one JSON value per line.
async fn python(interpreter: &str, tokens_per_second: u32, code: &str) -> Vec<Value> {
    let script = Script {
        inline: Some(SCRIPT.into()),
        ..Script::default()
    };
    let mut config = Config {
        decode_tokens_per_second: tokens_per_second,
        ..Config::default()
    };
    config.replies.script = Some(script);
    let simulator = Simulator::new(config).expect("an engine");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut engine = JoinSet::new();
    engine.spawn(async move { simulator.serve(listener, CancellationToken::new()).await });

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [
        root.join("examples/agent"),
        root.join("crates/rollout-agent/python"),
    ];
    let child = Command::new(interpreter)
        .arg("-c")
        .arg(code.replace("URL", &format!("{url:?}")))
        .env("PYTHONPATH", std::env::join_paths(places).expect("paths"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, child)
        .await
        .expect("an end in time")
        .expect("Python");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line)))
        .collect()
}

/// An interpreter with what the example agents need: `./test` makes one.
fn with_openai() -> String {
    std::env::var("ROLLOUT_TEST_PYTHON").expect(
        "ROLLOUT_TEST_PYTHON names no interpreter: run ./test, or \
        `python3 -m venv V && V/bin/pip install -r examples/agent/requirements.txt` and set ROLLOUT_TEST_PYTHON=V/bin/python",
    )
}

const PROBLEM: &str = r#"[{"role": "user", "content": "Ida buys 5 notebooks."}]"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_uses_its_tool_and_says_how_it_went() {
    let interpreter = with_openai();
    let code = format!(
        "import agent, asyncio, json
kwargs = {{'temperature': 0.5, 'max_tokens': 200, 'top_k': 5, 'min_p': 0.0, 'stop': ['###'], 'skip_special_tokens': False}}
for prompt in ({PROBLEM}, [{{'role': 'user', 'content': 'nonsense'}}]):
    print(json.dumps(asyncio.run(agent.run(URL, prompt, kwargs, {{}}))))
print(json.dumps(asyncio.run(agent.run(URL, {PROBLEM}, {{'max_tokens': 3}}))))
print(json.dumps(agent._trials))"
    );
    let mut said = python(&interpreter, 5000, &code).await;
    for result in said.iter_mut().take(3) {
        let seconds = result["agent_metrics"]["total_tool_time"].take();
        assert!(
            seconds
                .as_f64()
                .is_some_and(|seconds| (0.0..10.0).contains(&seconds)),
            "{seconds}"
        );
    }
    let ended = |status: &str, turns: u32, calls: u32| json!({"exit_status": status, "agent_metrics": {"turns": turns, "tool_calls": calls, "total_tool_time": null}});
    let expected = [
        ended("answered", 2, 1),
        ended("answered", 2, 1),
        ended("length", 1, 0),
        json!({}),
    ];
    assert_eq!(said, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_abort_hook_ends_the_sessions_it_was_told_and_no_other() {
    let interpreter = with_openai();
    let code = "import agent, asyncio, json, types
slow = [{'role': 'user', 'content': 'slow'}]
async def main():
    tasks = [asyncio.create_task(agent.run(URL, slow, {}))]
    while not any(trial._request for trial in agent._trials.values()):
        await asyncio.sleep(0.01)
    await agent.abort(types.SimpleNamespace(rollout_id=3, session_ids=['another']))
    print(tasks[0].done())
    await agent.abort(types.SimpleNamespace(rollout_id=3, session_ids=[URL.rsplit('/', 1)[-1]]))
    print(json.dumps((await tasks[0])['exit_status']))
    await agent.abort(types.SimpleNamespace())
asyncio.run(main())";
    let told = |rollout: &str, ended: &str| {
        json!(format!(
            "abort: told {{\"rollout_id\": {rollout}, \"session_server_instance_id\": null}}; {ended} trials end"
        ))
    };
    assert_eq!(
        python(&interpreter, 1, code).await,
        [
            told("3", "0 of 1"),
            json!("False"),
            told("3", "1 of 1"),
            json!("aborted: the rollout has enough samples"),
            told("null", "0 of 0"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calculator_calculates_and_does_nothing_else() {
    let interpreter = with_openai();
    let code = "import agent, json
for expression in ('(12+30)*2', '10/4', '5/0.25', '-2**2', '9**9**9', '__import__(\"os\")', '\"a\"*3', 'True+1', '1/0', '(' * 190, '1' * 201):
    try:
        print(json.dumps(agent.calculate(expression)))
    except Exception as error:
        print(json.dumps(type(error).__name__))";
    let values = python(&interpreter, 5000, code).await;
    let error = |name: &str| json!(name);
    assert_eq!(values[..4], [json!(84), json!(2.5), json!(20), json!(-4)]);
    assert_eq!(
        values[4..8],
        [
            error("ValueError"),
            error("ValueError"),
            error("ValueError"),
            error("ValueError")
        ]
    );
    assert_eq!(
        values[8..],
        [
            error("ZeroDivisionError"),
            error("SyntaxError"),
            error("ValueError")
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_without_dependencies_uses_its_tool() {
    let code = format!(
        "import asyncio, json
from rollout_host import stand_ins
stand_ins.install()
import agent_http
sent = []
async def post(url, payload):
    sent.append([message['role'] for message in payload['messages']])
    return await original(url, payload)
original, agent_http.post = agent_http.post, post
asyncio.run(agent_http.run_agent(URL, {PROBLEM}, {{'max_tokens': 200, 'top_k': 5}}))
print(json.dumps(sent))
for expression in ('12*3', '7 / 2', '1/0', '1+1+1', '-3 - -4.5'):
    print(json.dumps(agent_http.calculate({{'arguments': json.dumps({{'expression': expression}})}})))
print(json.dumps(agent_http.calculate({{'arguments': '[]'}})))"
    );
    let interpreter = std::env::var("ROLLOUT_TEST_PYTHON").unwrap_or("python3".to_owned());
    let said = python(&interpreter, 5000, &code).await;
    let turn = json!(["system", "user"]);
    assert_eq!(
        said[0],
        json!([turn, ["system", "user", "assistant", "tool"]])
    );
    assert_eq!(
        said[1..],
        [
            json!("36"),
            json!("3.5"),
            json!("error: division by zero"),
            json!("error: write one operation on two numbers, for example 12*3"),
            json!("1.5"),
            json!("error: the arguments are {\"expression\": \"...\"}"),
        ]
    );
}
