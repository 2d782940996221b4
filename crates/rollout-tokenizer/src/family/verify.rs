//! Proves on generated conversations that a template only appends, or finds the smallest conversation that breaks it.

use super::{Boundary, FamilyError, Inheriting, Kwargs};
use crate::TokenizerError;
use crate::json::Json;

/// What was proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Conversations that were rendered.
    pub conversations: usize,
    /// Places in them where a conversation goes on from a turn.
    pub turns: usize,
}

/// A conversation that breaks the template.
#[derive(Debug, Clone, PartialEq)]
pub struct Break {
    /// What is wrong, in words.
    pub problem: String,
    /// The messages; those from `turn_end` on are the appended ones.
    pub messages: Vec<Json>,
    /// How many messages the finished turn ends after.
    pub turn_end: usize,
    /// The tools.
    pub tools: Option<Json>,
    /// The text that should be the beginning of the other.
    pub expected: String,
    /// The text of the longer conversation.
    pub actual: String,
    /// Offset in bytes at which they part.
    pub at: usize,
}

#[derive(Debug, Clone)]
struct Case {
    old: Vec<Json>,
    appended: Vec<Json>,
    tools: Option<Json>,
}

/// Renders `count` conversations made from `seed`, and follows every turn of them.
///
/// # Errors
/// The template fails on all of the conversations: there is nothing that it can be held against.
pub fn verify(
    inheriting: &Inheriting,
    seed: u64,
    count: usize,
) -> Result<Result<Verified, Box<Break>>, FamilyError> {
    let kwargs = inheriting.kwargs(&Kwargs::new())?;
    let mut random = Random(seed);
    let mut turns = 0;
    let mut refusal = None;
    for _ in 0..count {
        let (messages, tools) = conversation(&mut random, inheriting.rules().append_roles);
        for case in cases(&messages, tools.as_ref()) {
            match check(inheriting, &case, &kwargs) {
                Ok(None) => turns += 1,
                Ok(Some(found)) => {
                    return Ok(Err(Box::new(shrunk(inheriting, case, found, &kwargs))));
                }
                // What a template refuses is never sent to an engine.
                Err(FamilyError::Tokenizer(error @ TokenizerError::Refused(_))) => {
                    refusal = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    match refusal {
        Some(error) if turns == 0 => Err(error.into()),
        _ => Ok(Ok(Verified {
            conversations: count,
            turns,
        })),
    }
}

/// Every place where a conversation goes on from a turn.
fn cases(messages: &[Json], tools: Option<&Json>) -> Vec<Case> {
    let ends: Vec<usize> = (0..messages.len())
        .filter(|index| role(&messages[*index]) == "assistant")
        .map(|index| index + 1)
        .collect();
    ends.iter()
        .enumerate()
        .map(|(number, end)| {
            let next = ends.get(number + 1).map_or(messages.len(), |next| next - 1);
            Case {
                old: messages[..*end].to_vec(),
                appended: messages[*end..next].to_vec(),
                tools: tools.cloned(),
            }
        })
        .collect()
}

fn role(message: &Json) -> &str {
    message
        .get("role")
        .and_then(Json::as_str)
        .unwrap_or_default()
}

struct Found {
    problem: String,
    expected: String,
    actual: String,
}

fn check(
    inheriting: &Inheriting,
    case: &Case,
    kwargs: &Kwargs,
) -> Result<Option<Found>, FamilyError> {
    let tools = case.tools.as_ref();
    let all = [case.old.as_slice(), &case.appended].concat();
    let before = inheriting.text(&case.old, tools, kwargs, false)?;
    let after = inheriting.text(&all, tools, kwargs, true)?;
    if !after.starts_with(&before) {
        return Ok(Some(Found {
            problem: "the text of finished turns changes when messages are appended".into(),
            expected: before,
            actual: after,
        }));
    }
    if let Some(found) = check_boundary(inheriting, &before)? {
        return Ok(Some(found));
    }
    let increment = match inheriting.increment(&case.old, &case.appended, tools, kwargs) {
        Ok(increment) => increment,
        Err(FamilyError::NotAppendOnly { problem, .. }) => {
            return Ok(Some(Found {
                problem,
                expected: before,
                actual: after,
            }));
        }
        Err(error) => return Err(error),
    };
    let expected = format!("{before}{increment}");
    Ok((expected != after).then(|| Found {
        problem: "appended messages are written in another way after this conversation than after a short one".into(),
        expected,
        actual: after,
    }))
}

/// An engine stops at its end token. What the template writes behind that has to be what the family's rule puts there.
fn check_boundary(inheriting: &Inheriting, before: &str) -> Result<Option<Found>, FamilyError> {
    let tokenizer = inheriting.tokenizer();
    let mut ids = tokenizer.encode(before)?;
    let is_end = |id: &u32| tokenizer.eos_ids().contains(id);
    match inheriting.rules().boundary {
        // The end token belongs to the next message: there is nothing behind the turn.
        Boundary::DropLast(_) => return Ok(None),
        Boundary::LineBreakAfter(token) => {
            let end = tokenizer.token_id(token);
            while ids.last().is_some_and(|last| Some(*last) != end) {
                ids.pop();
            }
        }
        Boundary::None => {
            let Some(last) = ids.iter().rposition(is_end) else {
                return Ok(None);
            };
            // An end token far from the end is one of an earlier message, or of a text that spells it.
            if ids.len() - last > 3 {
                return Ok(None);
            }
            ids.truncate(last + 1);
        }
    }
    inheriting.fix_boundary(&mut ids);
    let inherited = tokenizer.decode(&ids, false)?;
    Ok((inherited != before).then(|| Found {
        problem: format!(
            "what the template writes behind the end of a turn is not what the family {} puts there",
            inheriting.family()
        ),
        expected: before.to_owned(),
        actual: inherited,
    }))
}

/// Makes the case smaller as long as it breaks.
fn shrunk(inheriting: &Inheriting, mut case: Case, mut found: Found, kwargs: &Kwargs) -> Break {
    // Each step makes the case smaller, so that this ends.
    'again: loop {
        for smaller in smaller(&case) {
            if let Ok(Some(still)) = check(inheriting, &smaller, kwargs) {
                case = smaller;
                found = still;
                continue 'again;
            }
        }
        break;
    }
    let at = found
        .expected
        .bytes()
        .zip(found.actual.bytes())
        .take_while(|(left, right)| left == right)
        .count();
    let at = (0..=at)
        .rev()
        .find(|at| found.expected.is_char_boundary(*at) && found.actual.is_char_boundary(*at))
        .unwrap_or(0);
    Break {
        problem: found.problem,
        turn_end: case.old.len(),
        messages: [case.old, case.appended].concat(),
        tools: case.tools,
        expected: found.expected,
        actual: found.actual,
        at,
    }
}

fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    if case.tools.is_some() {
        all.push(Case {
            tools: None,
            ..case.clone()
        });
    }
    // The turn itself stays.
    for index in 0..case.old.len().saturating_sub(1) {
        let mut smaller = case.clone();
        smaller.old.remove(index);
        all.push(smaller);
    }
    for index in 0..case.appended.len() {
        let mut smaller = case.clone();
        smaller.appended.remove(index);
        all.push(smaller);
    }
    for index in 0..case.old.len() + case.appended.len() {
        let messages = |case: &mut Case, message: Json| {
            let old = case.old.len();
            if index < old {
                case.old[index] = message;
            } else {
                case.appended[index - old] = message;
            }
        };
        let message = case.old.iter().chain(&case.appended).nth(index);
        for simpler in message.into_iter().flat_map(simpler) {
            let mut smaller = case.clone();
            messages(&mut smaller, simpler);
            all.push(smaller);
        }
    }
    all
}

fn simpler(message: &Json) -> Vec<Json> {
    let Json::Object(fields) = message else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (key, value) in fields {
        if !matches!(&**key, "role" | "content") {
            let mut simpler = fields.clone();
            simpler.shift_remove(key);
            all.push(Json::Object(simpler));
        }
        if let Json::String(text) = value
            && &**key != "role"
            && text.len() > 1
        {
            let mut simpler = fields.clone();
            simpler.insert(key.clone(), Json::from("x"));
            all.push(Json::Object(simpler));
        }
    }
    all
}

/// `SplitMix64`: what is made depends on the seed alone.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn text(&mut self) -> &'static str {
        const TEXTS: [&str; 12] = [
            "hello",
            "list the files",
            "  padded  ",
            "two\n\nlines\n",
            "naïve 日本",
            "{\"a\": 1}",
            "42",
            "a <b> & 'c'",
            "👩‍👩‍👧",
            "yes",
            "x = y",
            "why?",
        ];
        TEXTS[usize::try_from(self.below(TEXTS.len() as u64)).unwrap_or(0)]
    }
}

fn message(role: &str, content: &str) -> Json {
    Json::object([("role", role.into()), ("content", content.into())])
}

fn turn(random: &mut Random, calls: usize) -> Json {
    let mut turn = message("assistant", if calls > 0 { "" } else { random.text() });
    if let Json::Object(fields) = &mut turn {
        if random.below(2) == 0 {
            fields.insert("reasoning_content".into(), random.text().into());
        }
        if calls > 0 {
            let calls = (0..calls).map(|number| {
                let arguments = Json::object([("path", random.text().into())]);
                let function = Json::object([("name", "run".into()), ("arguments", arguments)]);
                let id = format!("call0000{number}");
                Json::object([
                    ("id", id.as_str().into()),
                    ("type", "function".into()),
                    ("function", function),
                ])
            });
            let calls = Json::Array(calls.collect());
            fields.insert("tool_calls".into(), calls);
        }
    }
    turn
}

fn conversation(random: &mut Random, append_roles: &[&str]) -> (Vec<Json>, Option<Json>) {
    let mut messages = Vec::new();
    if random.below(2) == 0 {
        messages.push(message("system", random.text()));
    }
    let with_tools = random.below(2) == 0;
    for round in 0..=random.below(3) {
        if round > 0 && append_roles.contains(&"system") && random.below(8) == 0 {
            messages.push(message("system", random.text()));
        }
        messages.push(message("user", random.text()));
        for _ in 0..if with_tools { random.below(3) } else { 0 } {
            let calls = usize::try_from(1 + random.below(2)).unwrap_or(1);
            messages.push(turn(random, calls));
            for number in 0..calls {
                let mut result = message("tool", random.text());
                if let Json::Object(fields) = &mut result {
                    fields.insert(
                        "tool_call_id".into(),
                        format!("call0000{number}").as_str().into(),
                    );
                    fields.insert("name".into(), "run".into());
                }
                messages.push(result);
            }
        }
        messages.push(turn(random, 0));
    }
    messages.push(message("user", random.text()));
    let tools = with_tools.then(|| {
        let path = Json::object([("type", "string".into())]);
        let parameters = Json::object([
            ("type", "object".into()),
            ("properties", Json::object([("path", path)])),
        ]);
        let function = Json::object([
            ("name", "run".into()),
            ("description", "runs".into()),
            ("parameters", parameters),
        ]);
        Json::Array(vec![Json::object([
            ("type", "function".into()),
            ("function", function),
        ])])
    });
    (messages, tools)
}
