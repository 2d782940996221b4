//! Looks at engines: simulated ones, and some that are not as they should be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sglang_simulator::{Config, Simulator};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use engine_http::Trust;

use super::probe::{Probe, Watched};
use super::{Credentials, Surveyor, Surveys, Wanted};
use crate::plan::pool::external::{Abilities, Answer, Facts, Survey};
use crate::resources::pool::EngineList;

/// No test waits longer for anything.
const SOON: Duration = Duration::from_mins(1);

/// What a route of an engine becomes.
type Doctor = Arc<dyn Fn(&str, Value) -> Result<Value, StatusCode> + Send + Sync>;

/// A simulated engine on a socket, with doctored answers.
struct Engine {
    simulator: Simulator,
    url: String,
    _serving: JoinSet<()>,
}

impl Engine {
    async fn plain() -> Self {
        Self::doctored(|_, body| Ok(body)).await
    }

    async fn doctored(
        doctor: impl Fn(&str, Value) -> Result<Value, StatusCode> + Send + Sync + 'static,
    ) -> Self {
        let doctor: Doctor = Arc::new(doctor);
        Self::of(|routes| {
            routes.layer(middleware::from_fn(move |request: Request, next: Next| {
                let doctor = Arc::clone(&doctor);
                async move { treat(&doctor, request, next).await }
            }))
        })
        .await
    }

    /// Refuses what a gate does not let in.
    async fn behind(lets_in: impl Fn(&Request) -> bool + Clone + Send + Sync + 'static) -> Self {
        Self::of(|routes| {
            routes.layer(middleware::from_fn(move |request: Request, next: Next| {
                let is_in = lets_in(&request);
                async move {
                    if is_in {
                        next.run(request).await
                    } else {
                        StatusCode::UNAUTHORIZED.into_response()
                    }
                }
            }))
        })
        .await
    }

    async fn of(layered: impl FnOnce(axum::Router) -> axum::Router) -> Self {
        let simulator = Simulator::new(Config::default()).unwrap();
        let routes = layered(simulator.router());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            simulator,
            url,
            _serving: serving,
        }
    }

    async fn look(&self, before: &Watched) -> Watched {
        Probe::new(Trust::public(), None)
            .look(&self.url, before)
            .await
    }

    fn asked(&self, path: &str) -> u64 {
        let paths = self.simulator.state().paths;
        paths.get(path).map_or(0, |asked| asked.requests)
    }
}

async fn treat(doctor: &Doctor, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if let Err(status) = doctor(&path, Value::Null) {
        return status.into_response();
    }
    let (mut head, body) = next.run(request).await.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let Ok(value) = serde_json::from_slice(&body) else {
        return Response::from_parts(head, Body::from(body));
    };
    head.headers.remove("content-length");
    match doctor(&path, value) {
        Ok(value) => Response::from_parts(head, Body::from(value.to_string())),
        Err(status) => status.into_response(),
    }
}

fn tested(watched: &Watched) -> (&Facts, &Abilities) {
    match &watched.answer {
        Answer::Tested(facts, abilities) => (facts, abilities),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_engine_is_tested_once_and_then_only_asked() {
    let engine = Engine::plain().await;
    let first = engine.look(&Watched::default()).await;
    let (facts, abilities) = tested(&first);
    assert_eq!(abilities.lacks, [""; 0]);
    assert_eq!(abilities.remark, None);
    assert_eq!(abilities.version.as_deref(), Some("0.5.23"));
    assert_eq!(facts.weight_version.as_deref(), Some("default"));
    assert!(!facts.paused);
    let mut last = first.clone();
    for _ in 0..20 {
        last = engine.look(&last).await;
    }
    assert_eq!(last.answer, first.answer);
    assert_eq!(engine.asked("/generate"), 1);
    assert_eq!(engine.asked("/v1/chat/completions"), 1);
    assert_eq!(engine.asked("/health"), 0);
    assert_eq!(engine.simulator.state().running, 0);
}

#[tokio::test]
async fn what_an_engine_lacks_is_named_and_looked_for_again() {
    let old = |path: &str, mut body: Value| match path {
        "/server_info" => {
            if !body.is_null() {
                body["version"] = json!("0.5.9");
            }
            Ok(body)
        }
        "/abort_request" => Err(StatusCode::NOT_FOUND),
        "/generate" => {
            body.as_object_mut()
                .map(|body| body.remove("prompt_token_ids"));
            Ok(body)
        }
        "/v1/chat/completions" => {
            let choice = body
                .pointer_mut("/choices/0")
                .and_then(Value::as_object_mut);
            choice.map(|choice| choice.remove("meta_info"));
            Ok(body)
        }
        _ => Ok(body),
    };
    let engine = Engine::doctored(old).await;
    let first = engine.look(&Watched::default()).await;
    let (_, abilities) = tested(&first);
    assert_eq!(abilities.version.as_deref(), Some("0.5.9"));
    assert_eq!(
        abilities.lacks,
        [
            "it has no /abort_request",
            "its reply to /generate cannot be recorded: no prompt token ids: choices[0].prompt_token_ids is missing \
             (requires return_prompt_token_ids=True); SGLang 0.5.16 or later sends them",
            "its reply to /v1/chat/completions cannot be recorded: no output token ids: neither meta_info.output_token_logprobs, \
             nor response_token_ids, nor logprobs.content[*].token_id has them; SGLang 0.5.16 or later sends them",
        ]
    );
    let mut last = first;
    for _ in 0..30 {
        last = engine.look(&last).await;
    }
    let tests = engine.asked("/generate");
    assert!((2..=3).contains(&tests), "{tests}");
}

#[tokio::test]
async fn a_model_without_a_chat_template_serves_jobs_of_one_turn() {
    let engine = Engine::doctored(|path, body| match path {
        "/v1/chat/completions" => Err(StatusCode::BAD_REQUEST),
        _ => Ok(body),
    })
    .await;
    let looked = engine.look(&Watched::default()).await;
    let (_, abilities) = tested(&looked);
    assert_eq!(abilities.lacks, [""; 0]);
    assert!(
        abilities
            .remark
            .as_ref()
            .unwrap()
            .starts_with("takes no agents' turns")
    );
}

#[tokio::test]
async fn an_engine_with_too_much_to_do_is_tested_later() {
    let full = Arc::new(AtomicBool::new(true));
    let is_full = Arc::clone(&full);
    let engine = Engine::doctored(move |path, body| match path {
        "/generate" if is_full.load(Ordering::SeqCst) => Err(StatusCode::SERVICE_UNAVAILABLE),
        _ => Ok(body),
    })
    .await;
    let busy = engine.look(&Watched::default()).await;
    match &busy.answer {
        Answer::Untested(_, why) => assert_eq!(why, "answers 503 to a test request"),
        other => panic!("{other:?}"),
    }
    full.store(false, Ordering::SeqCst);
    let free = engine.look(&busy).await;
    assert_eq!(tested(&free).1.lacks, [""; 0]);
}

#[tokio::test]
async fn a_paused_engine_is_asked_for_no_token() {
    let engine = Engine::plain().await;
    let pause = |path: &'static str| {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = client
            .post(format!("{}{path}", engine.url))
            .json(&json!({"mode": "in_place"}));
        async move { asked.send().await.unwrap().error_for_status().unwrap() }
    };
    pause("/pause_generation").await;
    let paused = engine.look(&Watched::default()).await;
    assert!(
        matches!(&paused.answer, Answer::Untested(facts, why) if facts.paused && why.contains("is paused")),
        "{paused:?}"
    );
    assert_eq!(engine.asked("/generate"), 0);
    pause("/continue_generation").await;
    let going = engine.look(&paused).await;
    assert!(!tested(&going).0.paused);
    pause("/pause_generation").await;
    // What was found out stays.
    let again = engine.look(&going).await;
    assert!(tested(&again).0.paused);
}

/// As SGLang with `--api-key`: nothing is answered without it.
async fn locked(key: &'static str) -> Engine {
    Engine::behind(move |request: &Request| {
        let given = request.headers().get("authorization");
        given.is_some_and(|given| given == format!("Bearer {key}").as_str())
    })
    .await
}

#[tokio::test]
async fn an_engine_with_a_key_is_tested_with_it() {
    let engine = locked("secret").await;
    let with = |key: Option<&str>| {
        let probe = Probe::new(Trust::public(), key);
        let url = engine.url.clone();
        async move { probe.look(&url, &Watched::default()).await }
    };
    let right = with(Some("secret")).await;
    let (facts, abilities) = tested(&right);
    assert_eq!(abilities.lacks, [""; 0]);
    assert_eq!(abilities.version.as_deref(), Some("0.5.23"));
    assert_eq!(facts.weight_version.as_deref(), Some("default"));
    let none = with(None).await;
    assert_eq!(
        tested(&none).1.lacks,
        ["/model_info asks for a key: name it in spec.external.apiKeySecretRef"]
    );
    let wrong = with(Some("another")).await;
    assert_eq!(
        tested(&wrong).1.lacks,
        [
            "/model_info refuses the key of spec.external.apiKeySecretRef: use the one that the engine was started with (--api-key)"
        ]
    );
}

#[tokio::test]
async fn a_key_that_only_generation_asks_for_is_told_as_that() {
    let engine = Engine::doctored(|path, body| match path {
        "/generate" => Err(StatusCode::FORBIDDEN),
        _ => Ok(body),
    })
    .await;
    let looked = Probe::new(Trust::public(), Some("another"))
        .look(&engine.url, &Watched::default())
        .await;
    assert_eq!(
        tested(&looked).1.lacks,
        [
            "/generate refuses a plain request: it refuses the key of spec.external.apiKeySecretRef: use the one that the engine was started with (--api-key)"
        ]
    );
}

#[tokio::test]
async fn an_engine_that_is_not_trusted_needs_a_person() {
    let engine = Engine::plain().await;
    let url = engine.url.replace("http://", "https://");
    let looked = Probe::new(Trust::public(), None)
        .look(&url, &Watched::default())
        .await;
    assert_eq!(
        tested(&looked).1.lacks,
        ["does not speak TLS: if it speaks plain HTTP, write http://"]
    );
    assert_eq!(engine.asked("/ping"), 0);
}

#[tokio::test]
async fn a_survey_begins_anew_with_another_key() {
    let engine = locked("second").await;
    let key = Arc::new(Mutex::new(None));
    let keys = Arc::clone(&key);
    let surveyor = Arc::new(Surveyor::new(
        EngineList::Urls(vec![engine.url.clone()]),
        Box::new(move || {
            let key: Option<&str> = *keys.lock();
            let key = key.ok_or_else(|| "there is no key".to_owned())?;
            Ok(Credentials {
                key: Some(key.to_owned()),
                ca: None,
            })
        }),
    ));
    let (news, mut told) = tokio::sync::mpsc::unbounded_channel();
    let asks = Arc::clone(&surveyor);
    let mut asking = JoinSet::new();
    asking.spawn(async move {
        asks.run(
            || true,
            move || {
                let _ = news.send(());
            },
        )
        .await;
    });
    let mut until = async |what: &str, holds: &dyn Fn() -> bool| {
        let wait = async {
            while !holds() {
                told.recv().await.unwrap();
            }
        };
        tokio::time::timeout(SOON, wait).await.expect(what);
    };
    let missing = || surveyor.survey().missing.as_deref() == Some("there is no key");
    until("what is missing is told", &missing).await;
    assert_eq!(engine.asked("/ping"), 0);
    let lacks = || match &surveyor.survey().engines[0].answer {
        Answer::Tested(_, abilities) => Some(abilities.lacks.len()),
        _ => None,
    };
    *key.lock() = Some("first");
    until("the wrong key is told", &|| lacks() == Some(1)).await;
    assert_eq!(surveyor.survey().missing, None);
    *key.lock() = Some("second");
    until("the engine is tested", &|| lacks() == Some(0)).await;
    // What a Pod tells is what the controller hears.
    let told = serde_json::to_vec(&surveyor.survey()).unwrap();
    let heard: Survey = serde_json::from_slice(&told).unwrap();
    assert_eq!(heard, surveyor.survey());
}

#[tokio::test]
async fn one_look_without_an_answer_costs_an_engine_nothing() {
    let engine = Engine::plain().await;
    let good = engine.look(&Watched::default()).await;
    engine.simulator.kill();
    let once = engine.look(&good).await;
    let twice = engine.look(&once).await;
    assert_eq!(twice.answer, good.answer);
    let gone = engine.look(&twice).await;
    assert!(matches!(gone.answer, Answer::Silent(_)), "{gone:?}");
    // One that never answered is told at once.
    let dead = engine.look(&Watched::default()).await;
    assert!(matches!(dead.answer, Answer::Silent(_)), "{dead:?}");
}

#[tokio::test]
async fn what_is_no_engine_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, axum::Router::new()).await.unwrap() });
    let looked = Probe::new(Trust::public(), None)
        .look(&url, &Watched::default())
        .await;
    assert_eq!(tested(&looked).1.lacks, ["it has no /model_info"]);
}

#[tokio::test]
async fn a_survey_begins_with_the_first_question_and_ends_with_its_pool() {
    let engine = Engine::plain().await;
    let surveys = Surveys::default();
    let wanted = Wanted::Here {
        engines: EngineList::Urls(vec![engine.url.clone()]),
        ca: None,
    };
    let there = Arc::new(AtomicBool::new(true));
    let (news, mut told) = tokio::sync::mpsc::unbounded_channel();
    let ask = || {
        let (there, news) = (Arc::clone(&there), news.clone());
        surveys.of(
            "uid",
            wanted.clone(),
            move || there.load(Ordering::SeqCst),
            move || {
                let _ = news.send(());
            },
        )
    };
    assert_eq!(ask().engines[0].answer, Answer::Unasked);
    tokio::time::timeout(SOON, told.recv())
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(ask().engines[0].answer, Answer::Tested(..)));
    there.store(false, Ordering::SeqCst);
    let ended = async {
        let has_ended = || surveys.running.lock().get_mut("uid").unwrap().has_ended();
        while !has_ended() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, ended).await.unwrap();
    surveys.forget("uid");
    assert!(surveys.running.lock().is_empty());
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_told() {
    let surveys = Surveys::default();
    let wanted = Wanted::Here {
        engines: EngineList::Service("no-such-name.invalid:30000".to_owned()),
        ca: None,
    };
    let (news, mut told) = tokio::sync::mpsc::unbounded_channel();
    let ask = || {
        let news = news.clone();
        surveys.of(
            "uid",
            wanted.clone(),
            || true,
            move || {
                let _ = news.send(());
            },
        )
    };
    assert_eq!(ask().trouble, None);
    tokio::time::timeout(SOON, told.recv())
        .await
        .unwrap()
        .unwrap();
    let trouble = ask().trouble.unwrap();
    assert!(
        trouble.starts_with("no-such-name.invalid:30000 cannot be looked up"),
        "{trouble}"
    );
}
