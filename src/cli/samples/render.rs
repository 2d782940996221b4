//! One sample as text for people. Pure.

use rollout_session::Sample;
use rollout_tokenizer::Tokenizer;
use serde_json::Value;

use super::conversation::{Block, Piece, blocks};
use super::style::Style;
use crate::cli::printable::printable;

/// Characters of a metadata value that are shown.
const SHOWN: usize = 100;

/// Special tokens that an engine cuts off the end of the text, but not off the ids, are at most this long.
const LONGEST_STOP: usize = 32;

/// Where the text of tokens comes from.
pub(super) enum Decoder {
    /// The model's own, by the person's word.
    Given(Tokenizer),
    /// The built-in one: used only where it reproduces the response.
    Guessed(Tokenizer),
}

impl Decoder {
    /// The pieces of prompt and response, when the ids can be read.
    fn pieces(&self, sample: &Sample) -> Option<Vec<Piece>> {
        let tokenizer = match self {
            Self::Given(tokenizer) | Self::Guessed(tokenizer) => tokenizer,
        };
        let ids: Vec<u32> = sample
            .tokens
            .iter()
            .map(|id| u32::try_from(*id))
            .collect::<Result<_, _>>()
            .ok()?;
        let (prompt, response) =
            ids.split_at_checked(ids.len().checked_sub(sample.response_length)?)?;
        let decode = |ids: &[u32]| tokenizer.decode(ids, false).ok();
        if matches!(self, Self::Guessed(_)) && !reproduces(&decode(response)?, &sample.response) {
            return None;
        }
        let mut pieces = vec![Piece {
            text: decode(prompt)?,
            trained: false,
        }];
        let mut rest = response;
        for run in runs(sample) {
            let (ids, after) = rest.split_at_checked(run.tokens)?;
            pieces.push(Piece {
                text: decode(ids)?,
                trained: run.trained,
            });
            rest = after;
        }
        Some(pieces)
    }
}

/// Whether a decoded text is the response, but for a stop token that the engine cut off.
fn reproduces(decoded: &str, response: &str) -> bool {
    decoded
        .strip_prefix(response)
        .is_some_and(|rest| rest.len() <= LONGEST_STOP)
}

struct Run {
    tokens: usize,
    trained: bool,
}

/// Stretches of the response with the same loss mask.
fn runs(sample: &Sample) -> Vec<Run> {
    let Some(mask) = &sample.loss_mask else {
        return vec![Run {
            tokens: sample.response_length,
            trained: true,
        }];
    };
    let chunks = mask.chunk_by(|left, right| left == right);
    chunks
        .map(|run| Run {
            tokens: run.len(),
            trained: run.first() == Some(&1),
        })
        .collect()
}

/// The sample as lines, the last one blank.
pub(super) fn sample(sample: &Sample, decoder: &Decoder, style: Style) -> String {
    let mut page = Page {
        lines: vec![style.heading(&printable(&heading(sample)))],
        style,
    };
    for (name, value) in fields(sample) {
        page.field(name, &value);
    }
    match decoder.pieces(sample) {
        Some(pieces) => blocks(&pieces).iter().for_each(|block| page.block(block)),
        None => page.without_ids(sample),
    }
    page.lines.push("\n".to_owned());
    page.lines.join("\n")
}

fn heading(sample: &Sample) -> String {
    let number = |value: Option<i64>| value.map_or("?".to_owned(), |value| value.to_string());
    let status = serde_json::to_value(sample.status).unwrap_or_default();
    format!(
        "sample {}  group {}  {}  reward {}",
        number(sample.index),
        number(sample.group_index),
        status.as_str().unwrap_or("?"),
        sample.reward,
    )
}

fn fields(sample: &Sample) -> Vec<(&'static str, String)> {
    let prompt = sample.tokens.len().saturating_sub(sample.response_length);
    let response = sample.response_length;
    let mut fields = vec![(
        "tokens",
        format!(
            "{prompt} prompt, {response} response, {} trained",
            sample.trained_tokens()
        ),
    )];
    if !sample.label.is_null() {
        fields.push(("label", shortened(&sample.label)));
    }
    if !sample.weight_versions.is_empty() {
        fields.push(("weights", sample.weight_versions.join(", ")));
    }
    let cache = sample.prefix_cache_info;
    if cache.total_prompt_tokens > 0 {
        fields.push((
            "cache",
            format!(
                "{} of {} prompt tokens",
                cache.cached_tokens, cache.total_prompt_tokens
            ),
        ));
    }
    if let Some(log_probs) = sample
        .rollout_log_probs
        .as_ref()
        .filter(|_| sample.trained_tokens() > 0)
    {
        fields.push(("log-probs", log_prob_range(sample, log_probs)));
    }
    for (key, value) in &sample.metadata {
        fields.push(("metadata", format!("{key}: {}", shortened(value))));
    }
    fields
}

/// Lowest and mean log-probability of the trained tokens.
fn log_prob_range(sample: &Sample, log_probs: &[f64]) -> String {
    let is_trained = |place: usize| {
        sample
            .loss_mask
            .as_ref()
            .is_none_or(|mask| mask.get(place) == Some(&1))
    };
    let trained: Vec<f64> = log_probs
        .iter()
        .enumerate()
        .filter(|(place, _)| is_trained(*place))
        .map(|(_, value)| *value)
        .collect();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a mean for people; a response has far fewer than 2^53 tokens"
    )]
    let mean = trained.iter().sum::<f64>() / trained.len().max(1) as f64;
    let lowest = trained.iter().copied().fold(0.0, f64::min);
    format!("mean {mean:.4}, lowest {lowest:.4}")
}

fn shortened(value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

/// The lines of one sample.
struct Page {
    lines: Vec<String>,
    style: Style,
}

impl Page {
    fn field(&mut self, name: &str, value: &str) {
        let name = self.style.name(&format!("{name:9}"));
        self.lines.push(format!("  {name} {}", printable(value)));
    }

    fn role(&mut self, role: &str) {
        self.lines
            .push(format!("  {}", self.style.name(&printable(role))));
    }

    fn said(&mut self, text: &str) {
        let lines = text.trim_matches('\n').split('\n');
        self.lines
            .extend(lines.map(|line| format!("    {line}").trim_end().to_owned()));
    }

    fn block(&mut self, block: &Block) {
        self.role(block.role.as_deref().unwrap_or("text"));
        let marked = |piece: &Piece| {
            let safe = printable(&piece.text);
            if piece.trained {
                self.style.trained(&safe)
            } else {
                safe
            }
        };
        let text: String = block.pieces.iter().map(marked).collect();
        self.said(&text);
    }

    /// Without the model's tokenizer: the prompt as the data set has it, the response as text, and how much of it is trained.
    fn without_ids(&mut self, sample: &Sample) {
        match &sample.prompt {
            Value::Array(messages) => messages.iter().for_each(|message| self.message(message)),
            Value::String(prompt) => {
                self.role("prompt");
                self.said(&printable(prompt));
            }
            _ => {}
        }
        let runs = runs(sample);
        let trained = runs.iter().all(|run| run.trained);
        for mut block in blocks(&[Piece {
            text: sample.response.clone(),
            trained,
        }]) {
            block.role.get_or_insert_with(|| "response".to_owned());
            self.block(&block);
        }
        if !trained {
            let length = |run: &Run| {
                format!(
                    "{} {}",
                    run.tokens,
                    if run.trained { "trained" } else { "not" }
                )
            };
            let lengths = runs.iter().map(length).collect::<Vec<_>>().join(", ");
            self.said(
                &self
                    .style
                    .name(&format!("(tokens: {lengths}; --tokenizer DIR shows which)")),
            );
        }
    }

    fn message(&mut self, message: &Value) {
        self.role(message.get("role").and_then(Value::as_str).unwrap_or("?"));
        match message.get("content") {
            Some(Value::String(content)) => self.said(&printable(content)),
            Some(Value::Null) | None => {}
            Some(parts) => self.said(&printable(&parts.to_string())),
        }
        for call in message
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let function = call.get("function").unwrap_or(call);
            let name = function.get("name").and_then(Value::as_str).unwrap_or("?");
            let arguments = match function.get("arguments") {
                Some(Value::String(arguments)) => arguments.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            };
            self.said(&printable(&format!("calls {name}({arguments})")));
        }
    }
}
