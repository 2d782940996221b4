//! The status server and the last word.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use reqwest::{Client, StatusCode, header};
use rollout_driver::run::Driver;
use rollout_engine::Reason;
use rollout_router::Resolver;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::agents::{Agents, Behaviour};
use crate::rig::{Job, Pool, SUMS, engine, eventually, slow_engine};

#[tokio::test]
async fn the_status_has_an_etag_and_is_not_sent_twice() {
    let pool = Pool::start(vec![slow_engine(2000, 20)]).await;
    let job = Job::new(
        &pool.control_url,
        &json!({"sampling": {"maxNewTokens": 2000}, "teardown": {"drainSeconds": 1}}),
    );
    let driver = Driver::start(job.config()).await.unwrap();
    let (url, board) = (driver.status_url(), driver.board().clone());
    let stop = CancellationToken::new();
    let client = Client::builder().no_proxy().build().unwrap();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        eventually("samples are in flight", || {
            board.json()["progress"]["sessions"]["active"] == 4
        })
        .await;
        let first = client.get(&url).send().await.unwrap();
        let tag = first.headers()[header::ETAG].clone();
        let body: Value = first.json().await.unwrap();
        assert_eq!(body["version"], 1);
        assert_eq!(body["phase"], "Running");
        assert_eq!(body["demand"], Value::Null, "there are no agents");
        assert_eq!(body["attempt"], 1);
        assert_eq!(body["progress"]["groups"]["target"], 2);
        assert_eq!(body["result"], Value::Null);
        let again = client
            .get(&url)
            .header(header::IF_NONE_MATCH, tag)
            .send()
            .await
            .unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let metrics = client.get(url.replace("/status", "/metrics")).send();
        let metrics = metrics.await.unwrap().error_for_status().unwrap();
        let form = metrics.headers()[header::CONTENT_TYPE].clone();
        assert!(
            form.to_str()
                .unwrap()
                .starts_with("application/openmetrics-text")
        );
        let text = metrics.text().await.unwrap();
        for line in [
            "rollout_samples_in_flight 4",
            "rollout_takes_open 2",
            "rollout_queue_duration_seconds_count 4",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        stop.cancel();
    });
    result.unwrap();
    assert_eq!(board.json()["phase"], "Done");
    pool.stop().await;
}

#[tokio::test]
async fn the_last_word_stays_below_its_limit_and_keeps_the_result() {
    // No router: the error names what was tried, with its causes.
    let mut job = Job::new("http://127.0.0.1:9", &json!({}));
    job.config["timeouts"]["router_seconds"] = json!(0.1);
    job.config["router_url"] = json!(format!("http://127.0.0.1:9/{}", "x".repeat(5000)));
    job.run().await.unwrap_err();
    let word = job.last_word();
    assert_eq!(word["version"], 1);
    assert_eq!(word["result"]["reason"], "crashed");
}

/// An agentic job whose driver has a control token.
fn job_with_token(pool: &Pool) -> Job {
    let mut job = crate::agentic::job(pool, &json!({"teardown": {"drainSeconds": 0}}));
    let file = job.directory.path().join("control-token");
    std::fs::write(&file, "control-token\n").unwrap();
    job.config["control_token_file"] = json!(file);
    job
}

#[tokio::test]
async fn the_demand_is_the_routers_until_the_router_is_gone() {
    let mut pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = crate::agentic::job(&pool, &json!({"teardown": {"drainSeconds": 0}}));
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let stop = CancellationToken::new();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        let waiting = json!({"waiting": 4, "assigned": 0, "idle_claims": 0, "closed": false});
        eventually("four sessions wait", || board.json()["demand"] == waiting).await;
        let _agents = Agents::start(&pool, "sums", 1, |_, _| Behaviour::Deaf);
        let assigned = json!({"waiting": 3, "assigned": 1, "idle_claims": 0, "closed": false});
        eventually("one is taken", || board.json()["demand"] == assigned).await;
        pool.kill_router();
        eventually("the demand is not known", || {
            board.json()["demand"] == Value::Null
        })
        .await;
        stop.cancel();
    });
    drop(result);
    pool.stop().await;
}

#[tokio::test]
async fn a_pod_that_ended_is_told_by_whoever_has_the_control_token() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job_with_token(&pool);
    let driver = Driver::start(job.config()).await.unwrap();
    let (status, board) = (driver.status_url(), driver.board().clone());
    let url = status.replace("/status", "/pod-ended");
    let stop = CancellationToken::new();
    let client = Client::builder().no_proxy().build().unwrap();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        let _agents = Agents::start(&pool, "sums", 1, |_, _| Behaviour::Deaf);
        eventually("one session is taken", || {
            board.json()["demand"]["assigned"] == 1
        })
        .await;
        let pod = json!({"slot": 0, "generation": 1, "reason": "OOMKilled"});
        let tell = |token: &str, pod: &Value| client.post(&url).bearer_auth(token).json(pod).send();
        let refused = tell("wrong", &pod).await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(board.json()["progress"]["sessions"]["infraFailed"], 0);
        let wrong = tell("control-token", &json!({"slot": 0})).await.unwrap();
        assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
        let wrong: Value = wrong.json().await.unwrap();
        let message = wrong["error"]["message"].as_str().unwrap();
        assert!(message.contains("generation"), "{message}");
        for sessions in [1, 0] {
            let answer = tell("control-token", &pod).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            let answer: Value = answer.json().await.unwrap();
            assert_eq!(answer, json!({"sessions": sessions}));
        }
        eventually("the sample is an infrastructure failure", || {
            board.json()["progress"]["sessions"]["infraFailed"] == 1
        })
        .await;
        let shown = client.get(&status).send().await.unwrap();
        let shown = shown.error_for_status().unwrap().text().await.unwrap();
        assert!(shown.contains("OOMKilled"), "{shown}");
        assert!(!shown.contains("control-token"), "{shown}");
        stop.cancel();
    });
    result.unwrap();
    pool.stop().await;
}

#[tokio::test]
async fn a_pod_that_ended_while_the_router_is_away_is_told_again_later() {
    let mut pool = Pool::start(vec![engine(&SUMS)]).await;
    let job = job_with_token(&pool);
    let driver = Driver::start(job.config()).await.unwrap();
    let url = driver.status_url().replace("/status", "/pod-ended");
    let board = driver.board().clone();
    let stop = CancellationToken::new();
    let client = Client::builder().no_proxy().build().unwrap();
    let (result, ()) = tokio::join!(driver.run(stop.clone()), async {
        eventually("sessions wait", || board.json()["demand"]["waiting"] == 4).await;
        pool.kill_router();
        let pod = json!({"slot": 0, "generation": 1});
        let tell = client.post(&url).bearer_auth("control-token").json(&pod);
        let answer = tell.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
        let error: Value = answer.json().await.unwrap();
        assert_eq!(error["error"]["code"], "router");
        stop.cancel();
    });
    drop(result);
    pool.stop().await;
}

/// A pool whose engines are found by name, as soon as they are `there`.
async fn pool_by_name(there: impl Fn() -> bool + Send + Sync + 'static) -> Pool {
    Pool::start_with(vec![engine(&SUMS)], |router| {
        let urls = std::mem::take(&mut router.engines);
        let address: SocketAddr = urls[0].trim_start_matches("http://").parse().unwrap();
        router.engine_service = Some("engines.rl.svc:30000".parse().unwrap());
        router.times.lookup = Duration::from_millis(10);
        router.resolver = Resolver::new(move |_| {
            let known = there();
            async move { Ok(if known { vec![address] } else { Vec::new() }) }
        });
    })
    .await
}

#[tokio::test]
async fn a_job_begins_when_its_router_knows_engines() {
    let lookups = AtomicU32::new(0);
    let pool = pool_by_name(move || lookups.fetch_add(1, Ordering::Relaxed) >= 20).await;
    let job = Job::new(&pool.control_url, &json!({}));
    job.run().await.unwrap();
    assert_eq!(job.last_word()["recentFailures"], json!([]));
    pool.stop().await;
}

/// It is nobody's failure, and ends no start.
#[tokio::test]
async fn engines_that_are_away_are_waited_for_and_told() {
    let there = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&there);
    let pool = pool_by_name(move || seen.load(Ordering::Relaxed)).await;
    let mut job = Job::new(&pool.control_url, &json!({}));
    job.config["timeouts"]["router_seconds"] = json!(0.1);
    let driver = Driver::start(job.config()).await.unwrap();
    let board = driver.board().clone();
    let (result, ()) = tokio::join!(driver.run(CancellationToken::new()), async {
        eventually("what is missing is told", || {
            board.json()["recentFailures"][0]["reason"] == "no_engine"
        })
        .await;
        let told = &board.json()["recentFailures"][0]["message"];
        assert_eq!(
            *told,
            "it knows no engine: engines.rl.svc:30000 has no address"
        );
        there.store(true, Ordering::Relaxed);
    });
    assert!(result.unwrap().success, "{}", job.last_word());
    assert_eq!(job.last_word()["recentFailures"], json!([]));
    pool.stop().await;
}

#[tokio::test]
async fn deadlines_of_the_job_run_while_engines_are_away() {
    let pool = pool_by_name(|| false).await;
    for (deadline, reason) in [
        ("activeDeadlineSeconds", Reason::DeadlineExceeded),
        (
            "preRunningDeadlineSeconds",
            Reason::PreRunningDeadlineExceeded,
        ),
    ] {
        let job = Job::new(&pool.control_url, &json!({deadline: 1}));
        let result = job.run().await.unwrap();
        assert_eq!((result.reason, result.success), (reason, false));
        assert_eq!(job.manifest().result.expect("an end").result, result);
    }
    pool.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_no_engine() {
    let pool = pool_by_name(|| false).await;
    let job = Job::new(&pool.control_url, &json!({}));
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(
        job.run_until(stop).await.unwrap().reason,
        Reason::Interrupted
    );
    assert_eq!(job.last_word()["result"]["reason"], "interrupted");
    pool.stop().await;
}
