//! Agent functions as users write them.

use serde_json::json;

use crate::{
    pod::{ONE, Pod, REUSED, Shape},
    router::{FakeRouter, offer},
};

#[tokio::test]
async fn an_agent_in_the_form_of_miles_documentation_runs_unmodified() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let mut pod = Pod::function(&router, ONE, "documented_agent.run_agent");
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "completed", "{result:#}");
    assert_eq!(result["metadata"], json!({}));
    assert_eq!(result["hook"], json!(null));
    let (session, chat) = router.chats(1).await[0].clone();
    assert_eq!(session, id);
    assert_eq!(
        chat,
        json!({"model": "default", "messages": [{"role": "user", "content": "2+2?"}], "temperature": 0.5})
    );
    assert!(pod.ended_well().await);
    assert_eq!(router.wrong_tokens(), 0);
}

#[tokio::test]
async fn run_with_metadata_and_a_returned_dict() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let mut pod = Pod::function(&router, ONE, "miles_agent.run");
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "completed", "{result:#}");
    assert_eq!(result["metadata"]["reward"], 1.0);
    assert_eq!(result["metadata"]["answer"], "4");
    assert_eq!(
        result["metadata"]["seen"],
        json!(["session_server_id", "session_server_instance_id"])
    );
    assert_eq!(result["exit_code"], 0);
    assert!(result["agent_seconds"].as_f64().unwrap() > 0.0);
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn a_pod_is_used_again_until_the_router_closes() {
    let router = FakeRouter::start().await;
    let ids: Vec<_> = (0..5).map(|_| router.offer(offer())).collect();
    let mut pod = Pod::function(&router, REUSED, "miles_agent.run");
    for id in &ids {
        assert_eq!(router.result(id).await["outcome"], "completed");
    }
    router.close();
    assert!(pod.ended_well().await);
    assert!(ids.iter().all(|id| router.results_of(id) == 1));
}

#[tokio::test]
async fn many_sessions_run_at_once_in_one_process() {
    let router = FakeRouter::start().await;
    let ids: Vec<_> = (0..16).map(|_| router.offer(offer())).collect();
    let _pod = Pod::function(
        &router,
        Shape {
            concurrent: 16,
            sessions_per_pod: 0,
        },
        "gathering_agent.run",
    );
    let mut processes = Vec::new();
    for id in &ids {
        let result = router.result(id).await;
        assert_eq!(result["outcome"], "completed", "{result:#}");
        assert_eq!(result["metadata"]["together"], 16);
        processes.push(result["metadata"]["pid"].clone());
    }
    processes.dedup();
    assert_eq!(processes.len(), 1);
}

#[tokio::test]
async fn a_function_sees_the_users_environment_and_no_other() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::function(&router, ONE, "environment_agent.run");
    let result = router.result(&id).await;
    let seen = &result["metadata"];
    assert_eq!(seen["given"], "by the user", "{result:#}");
    assert_eq!(seen["foreign"], json!([]), "{result:#}");
    assert_eq!(seen["arguments"], 1);
    assert_eq!(seen["input"], "");
}

#[tokio::test]
async fn an_installed_miles_is_used_instead_of_the_stand_ins() {
    let code = tempfile::TempDir::new().unwrap();
    let package = code.path().join("miles/utils");
    std::fs::create_dir_all(&package).unwrap();
    for directory in [package.parent().unwrap(), &package] {
        std::fs::write(directory.join("__init__.py"), "").unwrap();
    }
    std::fs::write(
        package.join("http_utils.py"),
        "async def post(url, payload): return 'the real one'\n",
    )
    .unwrap();
    let agent = "from miles.utils.http_utils import post\nasync def run(base_url):\n    return {'from': await post('', {})}\n";
    std::fs::write(code.path().join("agent.py"), agent).unwrap();
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::function_in(&router, ONE, "agent.run", code.path());
    assert_eq!(router.result(&id).await["metadata"]["from"], "the real one");
}

/// `multiprocessing` starts the host's entry again in the child.
#[tokio::test]
async fn an_agent_may_use_multiprocessing() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::function(&router, ONE, "multiprocessing_agent.run");
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "completed", "{result:#}");
    assert_eq!(result["metadata"]["squares"], json!([0, 1, 4]));
}

#[tokio::test]
async fn a_sync_agent_may_run_an_event_loop_per_request() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::function(&router, ONE, "sync_http_agent.run");
    let result = router.result(&id).await;
    assert_eq!(result["metadata"]["reply"], "4", "{result:#}");
    assert!(
        result["metadata"]["more"].as_i64().unwrap() < 10,
        "{result:#}"
    );
}
