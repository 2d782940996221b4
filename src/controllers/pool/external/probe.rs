//! One look at one external engine.
//!
//! ```text
//!   every look    /ping, /ready, /model_info
//!   once          /server_info, /abort_request of an id that nobody has, and a request of one token to /generate and to /v1/chat/completions
//! ```
//!
//! The requests ask for what the router asks for, and their replies go through the router's own checks. An engine that fell silent is tested
//! again, and one that lacks something from time to time. `/health` is never asked: on a paused engine it fails and marks the engine as broken.

use std::time::Duration;

use bytes::Bytes;
use engine_http::{Asker, Problem, Question, Trust};
use http::{Method, StatusCode};
use rollout_session::{ChatReply, GenerateReply, ReplyError};
use serde_json::{Value, json};
use sglang_client::{ErrorBody, ModelInfo, ServerInfo};

use crate::plan::pool::external::{Abilities, Answer, Facts};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for a token: kernels of a first request are compiled.
const GENERATION: Duration = Duration::from_secs(30);
/// Longest answer that is read; `/server_info` has 40 KB.
const LONGEST: usize = 1 << 20;
/// Longest text of an engine that is told on.
const LONGEST_TEXT: usize = 256;
/// Looks in a row without an answer after which an engine that answered is said to be silent.
const SILENCE: u8 = 3;
/// Looks after which an engine that lacks something is tested again.
const AGAIN: u8 = 12;

/// An engine between two looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) answer: Answer,
    /// Looks since it was tested.
    age: u8,
    /// Looks in a row without an answer.
    silent: u8,
}

/// Asks engines.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    asker: Asker,
}

/// Why a test says nothing.
struct Undecided(String);

type Reply = Result<(StatusCode, Bytes), Problem>;

impl Probe {
    pub(super) fn new(trust: Trust, key: Option<&str>) -> Self {
        let asker = Asker::new(CONNECT, trust, LONGEST);
        Self {
            asker: match key {
                Some(key) => asker.with_key(key),
                None => asker,
            },
        }
    }

    /// One look, with what the look before it showed.
    pub(super) async fn look(&self, url: &str, before: &Watched) -> Watched {
        let engine = At { probe: self, url };
        let serving = match engine.get("/ping").await {
            Err(problem) if problem.lasts() => return Watched::lacking(problem.words()),
            Err(problem) => Err(problem.words()),
            Ok((StatusCode::SERVICE_UNAVAILABLE, _)) => {
                Err("answers 503: it starts, drains or is broken".to_owned())
            }
            Ok((status, _)) => Ok(status),
        };
        let ping = match serving {
            Ok(status) => status,
            Err(why) => return before.without_answer(why),
        };
        let facts = match engine.facts(ping).await {
            Ok(facts) => facts,
            Err(Lack::Undecided(why)) => return before.without_answer(why),
            Err(Lack::Feature(lack)) => return Watched::lacking(lack),
        };
        if let Answer::Tested(_, abilities) = &before.answer
            && (abilities.lacks.is_empty() || before.age < AGAIN)
        {
            return Watched {
                answer: Answer::Tested(facts, abilities.clone()),
                age: before.age.saturating_add(1),
                silent: 0,
            };
        }
        if facts.paused {
            let why = "is paused: it is tested once it goes on".to_owned();
            return Watched::of(Answer::Untested(facts, why));
        }
        Watched::of(match engine.test(&facts).await {
            Ok(abilities) => Answer::Tested(facts, abilities),
            Err(Undecided(why)) => Answer::Untested(facts, why),
        })
    }
}

impl Watched {
    fn of(answer: Answer) -> Self {
        Self {
            answer,
            ..Self::default()
        }
    }

    /// Of an engine that nothing else is known of.
    fn lacking(lack: String) -> Self {
        let abilities = Abilities {
            lacks: vec![lack],
            ..Abilities::default()
        };
        Self::of(Answer::Tested(Facts::default(), abilities))
    }

    /// One look without an answer says nothing about an engine that answered before.
    fn without_answer(&self, why: String) -> Self {
        let silent = self.silent.saturating_add(1);
        let answered = !matches!(self.answer, Answer::Unasked | Answer::Silent(_));
        if answered && silent < SILENCE {
            return Self {
                silent,
                ..self.clone()
            };
        }
        Self {
            answer: Answer::Silent(why),
            age: 0,
            silent,
        }
    }
}

/// What a question showed instead of an answer.
enum Lack {
    /// The engine does not have it.
    Feature(String),
    /// Nobody can tell.
    Undecided(String),
}

struct At<'a> {
    probe: &'a Probe,
    url: &'a str,
}

impl At<'_> {
    async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path, None, LIMIT).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Reply {
        let question = Question {
            method,
            url: &format!("{}{path}", self.url),
            body: body.map(|body| Bytes::from(body.to_string())),
            within: limit,
        };
        self.probe.asker.ask(question).await
    }

    /// What it says about itself.
    async fn facts(&self, ping: StatusCode) -> Result<Facts, Lack> {
        let (info, ready) = tokio::join!(self.get("/model_info"), self.get("/ready"));
        let body = self.found("/model_info", info)?;
        let info: ModelInfo = serde_json::from_slice(&body)
            .map_err(|_| Lack::Feature("/model_info does not answer as SGLang's".to_owned()))?;
        // `/ready` is `/ping`, and not paused; SGLang before 0.5.17 does not have it.
        let is_unready = matches!(ready, Ok((StatusCode::SERVICE_UNAVAILABLE, _)));
        Ok(Facts {
            model: Some(shorten(&info.model_path)).filter(|path| !path.is_empty()),
            served_name: info.served_model_name.as_deref().map(shorten),
            weight_version: info.weight_version.as_deref().map(shorten),
            paused: ping.is_success() && is_unready,
        })
    }

    /// Finds out what it can do.
    async fn test(&self, facts: &Facts) -> Result<Abilities, Undecided> {
        let mut abilities = Abilities::default();
        let info = self.get("/server_info").await;
        match self.found("/server_info", info) {
            Ok(body) => {
                let info: Option<ServerInfo> = serde_json::from_slice(&body).ok();
                let version = info.map(|info| shorten(&info.version));
                abilities.version = version.filter(|version| !version.is_empty());
            }
            Err(Lack::Feature(lack)) => abilities.lacks.push(lack),
            Err(Lack::Undecided(why)) => return Err(Undecided(why)),
        }
        let nobody = json!({"rid": id()});
        let aborted = self.ask(Method::POST, "/abort_request", Some(&nobody), LIMIT);
        match self.found("/abort_request", aborted.await) {
            Ok(_) => {}
            Err(Lack::Feature(lack)) => abilities.lacks.push(lack),
            Err(Lack::Undecided(why)) => return Err(Undecided(why)),
        }
        match self.generate().await? {
            Ok(()) => {}
            Err(lack) => abilities.lacks.push(lack),
        }
        match self.chat(facts).await? {
            Ok(remark) => abilities.remark = remark,
            Err(lack) => abilities.lacks.push(lack),
        }
        Ok(abilities)
    }

    /// A sample of one turn, as the driver takes it through the router.
    async fn generate(&self) -> Result<Result<(), String>, Undecided> {
        let rid = id();
        let body = json!({
            "rid": rid,
            "text": "1",
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": true},
            "return_logprob": true,
            "return_prompt_token_ids": true,
            "stream": false,
        });
        Ok(match self.tokens("/generate", &rid, &body).await? {
            Ok(reply) => GenerateReply::parse(&reply, None)
                .map(drop)
                .map_err(|error| lack_of("/generate", &error)),
            Err(refusal) => Err(format!("/generate refuses a plain request: {refusal}")),
        })
    }

    /// A turn of an agent, as the router records it. A model without a chat template takes none: its remark.
    async fn chat(&self, facts: &Facts) -> Result<Result<Option<String>, String>, Undecided> {
        const PATH: &str = "/v1/chat/completions";
        let rid = id();
        let model = facts.served_name.as_ref().or(facts.model.as_ref());
        let body = json!({
            "rid": rid,
            "model": model.map_or("default", |model| model.as_str()),
            "messages": [{"role": "user", "content": "1"}],
            "max_tokens": 1,
            "temperature": 0.0,
            "logprobs": true,
            "return_prompt_token_ids": true,
            "return_meta_info": true,
            "no_stop_trim": false,
            "stream": false,
        });
        Ok(match self.tokens(PATH, &rid, &body).await? {
            Ok(reply) => ChatReply::parse(&reply, None, None)
                .map(|_| None)
                .map_err(|error| lack_of(PATH, &error)),
            Err(refusal) => Ok(Some(format!("takes no agents' turns: {refusal}"))),
        })
    }

    /// Asks for a token. An engine that has too much to do, or is compiling, is asked again another time.
    async fn tokens(
        &self,
        path: &str,
        rid: &str,
        body: &Value,
    ) -> Result<Result<Bytes, String>, Undecided> {
        match self.ask(Method::POST, path, Some(body), GENERATION).await {
            Ok((status, body)) if status.is_success() => Ok(Ok(body)),
            Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => {
                Ok(Err(format!("it {}", self.locked())))
            }
            Ok((status, body)) if status.is_client_error() => {
                Ok(Err(shorten(&ErrorBody::parse(&body).message)))
            }
            Ok((status, _)) => Err(Undecided(format!(
                "answers {} to a test request",
                status.as_u16()
            ))),
            Err(problem) => {
                let abort = json!({"rid": rid});
                // Nothing is lost if that fails too: it is one token.
                let _ = self
                    .ask(Method::POST, "/abort_request", Some(&abort), LIMIT)
                    .await;
                Err(Undecided(format!("{} (a test request)", problem.words())))
            }
        }
    }

    /// The body of an answer that has to be there.
    fn found(&self, path: &str, reply: Reply) -> Result<Bytes, Lack> {
        match reply {
            Err(problem) => Err(Lack::Undecided(problem.words())),
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => {
                Err(Lack::Feature(format!("{path} {}", self.locked())))
            }
            Ok((status, _)) if status.is_server_error() => Err(Lack::Undecided(format!(
                "answers {} to {path}",
                status.as_u16()
            ))),
            Ok((status, body)) => Err(Lack::Feature(match status {
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                    format!("it has no {path}")
                }
                _ => format!(
                    "{path} answers {}: {}",
                    status.as_u16(),
                    shorten(&ErrorBody::parse(&body).message)
                ),
            })),
        }
    }

    /// What it means that nobody is let in.
    fn locked(&self) -> &'static str {
        if self.probe.asker.has_key() {
            "refuses the key of spec.external.apiKeySecretRef: use the one that the engine was started with (--api-key)"
        } else {
            "asks for a key: name it in spec.external.apiKeySecretRef"
        }
    }
}

fn lack_of(path: &str, error: &ReplyError) -> String {
    let hint = match error {
        ReplyError::NoLogProbs | ReplyError::NoOutputIds | ReplyError::NoPromptIds => {
            "; SGLang 0.5.16 or later sends them"
        }
        _ => "",
    };
    format!("its reply to {path} cannot be recorded: {error}{hint}")
}

/// Of a fixed length: SGLang aborts by prefix.
fn id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn shorten(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_TEXT)].to_owned()
}
