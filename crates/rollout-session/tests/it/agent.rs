//! An agent, a template and an engine without a socket: conversations in messages, prompts as ids.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use rollout_session::forest::Rules;
use rollout_session::{
    CommitError, FinishReason, Forest, Generation, Matcher, Position, PrepareError, Shape,
    TurnContext, TurnId, message_spans,
};
use serde_json::{Value, json};

/// Ends every prompt.
const GENERATION_PROMPT: u32 = 7;

/// What may follow an answer.
pub(crate) const ROLES: [&str; 3] = ["tool", "user", "assistant"];

/// Rules that nothing breaks.
pub(crate) fn rules() -> Rules<'static> {
    Rules {
        matcher: Matcher::Strict,
        append_roles: Some(&ROLES),
        max_turns: 1_024,
        in_flight: 0,
    }
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// Ids of a message that was not generated.
fn render(message: &Value) -> u32 {
    let mut hasher = DefaultHasher::new();
    message.to_string().hash(&mut hasher);
    100 + u32::try_from(hasher.finish() % 1_000_000).unwrap()
}

/// A request that was given its place.
pub(crate) struct Asked {
    pub(crate) body: String,
    pub(crate) spans: Vec<Range<usize>>,
    pub(crate) position: Position,
    pub(crate) prompt: Vec<u32>,
}

/// Finds the place of a request and renders its prompt.
pub(crate) fn ask(
    forest: &mut Forest,
    messages: &[Value],
    rules: Rules<'_>,
) -> Result<Asked, PrepareError> {
    let body =
        json!({"model": "m", "messages": messages, "tools": [{"type": "function"}]}).to_string();
    let spans = message_spans(&body).unwrap();
    let position = forest.prepare(&body, &spans, rules)?;
    let mut prompt = position.base.map_or_else(Vec::new, |base| forest.ids(base));
    prompt.extend(messages[position.known..].iter().map(render));
    prompt.push(GENERATION_PROMPT);
    Ok(Asked {
        body,
        spans,
        position,
        prompt,
    })
}

/// An engine's answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) message: Value,
    pub(crate) output: Vec<(u32, f64)>,
    pub(crate) finish: FinishReason,
}

impl Answer {
    /// A completed answer of one token.
    pub(crate) fn of(text: &str, id: u32) -> Self {
        Self {
            message: assistant(text),
            output: vec![(id, -0.5)],
            finish: FinishReason::Stop,
        }
    }
}

/// Records the answer to a request.
pub(crate) fn answer(
    forest: &mut Forest,
    asked: &Asked,
    answer: &Answer,
) -> Result<TurnId, CommitError> {
    let number = forest.len();
    let response = json!({"id": format!("r{number}"), "choices": [{"message": answer.message}]});
    let generation = Generation {
        finish: Some(answer.finish.clone()),
        ..crate::support::generation(&asked.prompt, &answer.output)
    };
    let context = TurnContext {
        messages: Some(asked.spans.len()),
        message_spans: &asked.spans,
        request: asked.body.as_bytes(),
        sent_ids: true,
        response: response.to_string().into_bytes(),
        answered_at: f64::from(u32::try_from(number).unwrap()),
        ..TurnContext::default()
    };
    forest.commit_at(&asked.position, generation, context)
}

/// Asks and answers at once.
pub(crate) fn say(forest: &mut Forest, messages: &[Value], text: &str, id: u32) -> TurnId {
    let asked = ask(forest, messages, rules()).unwrap();
    answer(forest, &asked, &Answer::of(text, id)).unwrap()
}

/// An empty session.
pub(crate) fn session(shape: Shape) -> Forest {
    Forest::of_shape(shape, 0)
}
