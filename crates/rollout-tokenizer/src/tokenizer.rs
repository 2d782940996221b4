//! The tokenizer itself: text to ids and back.

use std::fmt;
use std::path::Path;

use tokenizers::AddedToken;

use crate::TokenizerError;
use crate::load::{self, Files};
use crate::template::{ChatTemplateInput, Clock, RenderInput, Templates};
use crate::token_bytes::Spelling;

/// A Hugging Face tokenizer with its chat template. Cheap to share behind an `Arc`, not to clone.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    spelling: Spelling,
    vocab_size: usize,
    eos_ids: Vec<u32>,
    templates: Templates,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size)
            .field("eos_ids", &self.eos_ids)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a tokenizer from a directory: `tokenizer.json`, and beside it `tokenizer_config.json` (chat template, named and
    /// added tokens), `chat_template.jinja`, `generation_config.json` and `config.json` (end-of-sequence ids).
    ///
    /// # Errors
    /// `tokenizer.json` is missing, or a file cannot be read, parsed, or contradicts another one.
    pub fn from_dir(directory: &Path) -> Result<Self, TokenizerError> {
        Self::from_files(&Files::directory(directory))
    }

    pub(crate) fn from_files(files: &Files) -> Result<Self, TokenizerError> {
        const MODEL: &str = "tokenizer.json";
        const CONFIG: &str = "tokenizer_config.json";
        let broken = |name: &str, problem: String| TokenizerError::Config {
            file: files.shown(name),
            problem,
        };

        let config = files.object(CONFIG)?;
        let mut inner =
            tokenizers::Tokenizer::from_bytes(files.required(MODEL)?).map_err(|source| {
                TokenizerError::Load {
                    file: files.shown(MODEL),
                    source,
                }
            })?;
        unlimited(&mut inner).map_err(|source| TokenizerError::Load {
            file: files.shown(MODEL),
            source,
        })?;
        let declared = load::added_tokens(&config).map_err(|problem| broken(CONFIG, problem))?;
        add_all(&mut inner, declared).map_err(|problem| broken(CONFIG, problem))?;
        let named = load::named_tokens(&config);
        for content in named
            .iter()
            .map(|(_, content)| content.clone())
            .chain(load::extra_special_tokens(&config))
        {
            make_special(&mut inner, &content).map_err(|problem| broken(CONFIG, problem))?;
        }

        let mut eos_ids: Vec<u32> = named
            .iter()
            .filter(|(name, _)| name == "eos_token")
            .filter_map(|(_, content)| inner.token_to_id(content))
            .collect();
        for name in ["generation_config.json", "config.json"] {
            let ids = load::eos_token_ids(&files.object(name)?)
                .map_err(|problem| broken(name, problem))?;
            for id in ids {
                if !eos_ids.contains(&id) {
                    eos_ids.push(id);
                }
            }
        }

        let decoder = inner
            .get_decoder()
            .map(serde_json::to_string)
            .transpose()
            .map_err(|source| TokenizerError::Json {
                file: files.shown(MODEL),
                source,
            })?
            .unwrap_or_default();
        let vocab_size = inner
            .get_vocab(true)
            .values()
            .max()
            .map_or(0, |highest| *highest as usize + 1);
        Ok(Self {
            spelling: Spelling::of_decoder(&decoder),
            vocab_size,
            eos_ids,
            templates: Templates::new(load::chat_templates(files, &config)?, named)?,
            inner,
        })
    }

    /// The same tokenizer with another chat template (Jinja source) in place of its own.
    ///
    /// # Errors
    /// The template has a syntax error.
    pub fn with_chat_template(mut self, source: &str) -> Result<Self, TokenizerError> {
        self.templates = self.templates.replaced(source)?;
        Ok(self)
    }

    /// The same tokenizer with another clock for templates that ask for the date (`strftime_now`); the default is the system's, in UTC.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "each template has a share in it"
    )]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.templates.set_clock(&clock);
        self
    }

    /// The ids of a text. Nothing is added; the text of a special token becomes its id.
    ///
    /// # Errors
    /// The model has no token for a part of the text, and no token for unknown parts either. Byte-level models never fail.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.inner
            .encode_fast(text, false)
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|source| TokenizerError::Encode { source })
    }

    /// The text of ids, without clean-up. Ids that name no token are left out; bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// The tokenizer's decoder failed.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        self.inner
            .decode(ids, skip_special)
            .map_err(|source| TokenizerError::Decode { source })
    }

    /// The text of one token, decoded alone, special tokens included: what engines show beside a log-probability.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)?;
        self.decode(&[id], false).ok()
    }

    /// The bytes that one token stands for; half a character is half a character.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(token) = self.inner.get_added_vocabulary().simple_id_to_token(id) {
            return Some(token.into_bytes());
        }
        Some(self.spelling.bytes(&self.inner.id_to_token(id)?))
    }

    /// The id of a token by its text in the vocabulary, such as `<|im_end|>`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The ids of the special tokens, ascending.
    pub fn special_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self
            .inner
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The highest id plus one: every id of the tokenizer is below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The ids that end a generation: the `eos_token`, then those of `generation_config.json` and `config.json`.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// Whether there is a chat template.
    pub fn has_chat_template(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Renders messages to the text of a prompt.
    ///
    /// # Errors
    /// There is no template, the messages are malformed, or the template refused them ([`TokenizerError::Refused`]) or failed.
    pub fn apply_chat_template(
        &self,
        input: &ChatTemplateInput<'_>,
    ) -> Result<String, TokenizerError> {
        self.templates.render(input)
    }

    /// Renders messages that kept every digit of their numbers. What SGLang does to messages first is done here too: null fields are
    /// absent, arguments of tool calls are objects, lists of text parts are flattened where the template takes text.
    ///
    /// # Errors
    /// As [`Tokenizer::apply_chat_template`].
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, TokenizerError> {
        self.templates.render_exact(input)
    }
}

/// Switches off what a `tokenizer.json` may say about lengths: a prompt is never cut or padded here.
fn unlimited(inner: &mut tokenizers::Tokenizer) -> tokenizers::Result<()> {
    inner.with_padding(None);
    inner.with_truncation(None)?;
    Ok(())
}

/// Adds the tokens of `added_tokens_decoder`; a token that `tokenizer.json` has already keeps its id.
///
/// Each addition builds the automaton for all added tokens anew, and there are models with thousands: those that are there already are
/// left out, and runs of one kind are added at once.
fn add_all(
    inner: &mut tokenizers::Tokenizer,
    declared: Vec<(u32, AddedToken)>,
) -> Result<(), String> {
    let known = inner.get_added_tokens_decoder();
    let new: Vec<AddedToken> = declared
        .iter()
        .filter(|(id, token)| known.get(id) != Some(token) || !same_flags(known.get(id), token))
        .map(|(_, token)| token.clone())
        .collect();
    for run in new.chunk_by(|left, right| left.special == right.special) {
        let result = if run.iter().all(|token| token.special) {
            inner.add_special_tokens(run.to_vec())
        } else {
            inner.add_tokens(run.to_vec())
        };
        result.map_err(|error| format!("the added tokens cannot be added: {error}"))?;
    }
    for (id, token) in declared {
        match inner.token_to_id(&token.content) {
            Some(actual) if actual != id => {
                return Err(format!(
                    "added_tokens_decoder says that {:?} is {id}, tokenizer.json makes it {actual}",
                    token.content
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Tokens count as equal by their text alone.
fn same_flags(known: Option<&AddedToken>, token: &AddedToken) -> bool {
    known.is_some_and(|known| {
        (
            known.special,
            known.single_word,
            known.lstrip,
            known.rstrip,
            known.normalized,
        ) == (
            token.special,
            token.single_word,
            token.lstrip,
            token.rstrip,
            token.normalized,
        )
    })
}

/// Marks a token that the configuration names as special, adding it if it is new.
fn make_special(inner: &mut tokenizers::Tokenizer, content: &str) -> Result<(), String> {
    let known = inner
        .token_to_id(content)
        .and_then(|id| inner.get_added_tokens_decoder().get(&id).cloned());
    let token = match known {
        Some(token) if token.special => return Ok(()),
        Some(token) => token.special(true),
        None => AddedToken::from(content, true),
    };
    inner
        .add_special_tokens([token])
        .map(|_| ())
        .map_err(|error| format!("the special token {content:?} cannot be added: {error}"))
}
