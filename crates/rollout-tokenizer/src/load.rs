//! Reading the files of a tokenizer: which there are, and what they say besides the model itself.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::TokenizerError;

/// The files of a tokenizer, in a directory or in the binary.
pub(crate) enum Files {
    Directory(PathBuf),
    Embedded(&'static [(&'static str, &'static str)]),
}

impl Files {
    pub(crate) fn directory(path: &Path) -> Self {
        Self::Directory(path.to_owned())
    }

    pub(crate) fn embedded(files: &'static [(&'static str, &'static str)]) -> Self {
        Self::Embedded(files)
    }

    /// The name that an error shows.
    pub(crate) fn shown(&self, name: &str) -> String {
        match self {
            Self::Directory(path) => path.join(name).display().to_string(),
            Self::Embedded(_) => format!("the built-in {name}"),
        }
    }

    /// The text of a file, `None` if there is no such file.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<String>, TokenizerError> {
        match self {
            Self::Embedded(files) => Ok(files
                .iter()
                .find(|(file, _)| *file == name)
                .map(|(_, text)| (*text).to_owned())),
            Self::Directory(directory) => {
                let path = directory.join(name);
                match fs::read_to_string(&path) {
                    Ok(text) => Ok(Some(text)),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(source) => Err(TokenizerError::Read { path, source }),
                }
            }
        }
    }

    /// The text of a file that must be there.
    pub(crate) fn required(&self, name: &str) -> Result<String, TokenizerError> {
        self.optional(name)?.ok_or_else(|| match self {
            Self::Directory(directory) => TokenizerError::Read {
                path: directory.join(name),
                source: ErrorKind::NotFound.into(),
            },
            Self::Embedded(_) => TokenizerError::Config {
                file: self.shown(name),
                problem: "is missing".into(),
            },
        })
    }

    /// A JSON object, empty if there is no such file.
    pub(crate) fn object(&self, name: &str) -> Result<Map<String, Value>, TokenizerError> {
        let Some(text) = self.optional(name)? else {
            return Ok(Map::new());
        };
        serde_json::from_str(&text).map_err(|source| TokenizerError::Json {
            file: self.shown(name),
            source,
        })
    }
}

/// The text of a token that a configuration names: a string, or an object with `content`.
pub(crate) fn token_name(value: &Value) -> Option<&str> {
    match value {
        Value::String(name) => Some(name),
        Value::Object(token) => token.get("content").and_then(Value::as_str),
        _ => None,
    }
}

/// The tokens of `added_tokens_decoder`, by id.
pub(crate) fn added_tokens(config: &Map<String, Value>) -> Result<Vec<(u32, AddedToken)>, String> {
    let Some(Value::Object(entries)) = config.get("added_tokens_decoder") else {
        return Ok(Vec::new());
    };
    let mut tokens = entries
        .iter()
        .map(|(id, entry)| {
            let number = id
                .parse::<u32>()
                .map_err(|_| format!("added_tokens_decoder: {id:?} is not a token id"))?;
            let content = token_name(entry)
                .ok_or_else(|| format!("added_tokens_decoder[{id}] has no content"))?;
            let flag = |name| entry.get(name).and_then(Value::as_bool);
            let special = flag("special").unwrap_or(false);
            let token = AddedToken::from(content, special)
                .single_word(flag("single_word").unwrap_or(false))
                .lstrip(flag("lstrip").unwrap_or(false))
                .rstrip(flag("rstrip").unwrap_or(false))
                .normalized(flag("normalized").unwrap_or(!special));
            Ok((number, token))
        })
        .collect::<Result<Vec<_>, String>>()?;
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens)
}

/// The special tokens that a template sees by name (`bos_token`, `eos_token`, ...).
pub(crate) fn named_tokens(config: &Map<String, Value>) -> Vec<(String, String)> {
    const NAMES: [&str; 7] = [
        "bos_token",
        "eos_token",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
    ];
    NAMES
        .iter()
        .filter_map(|name| {
            Some((
                (*name).to_owned(),
                token_name(config.get(*name)?)?.to_owned(),
            ))
        })
        .collect()
}

/// Tokens that the configuration declares special beyond the named ones.
pub(crate) fn extra_special_tokens(config: &Map<String, Value>) -> Vec<String> {
    let list = |name| match config.get(name) {
        Some(Value::Array(tokens)) => tokens
            .iter()
            .filter_map(token_name)
            .map(str::to_owned)
            .collect(),
        Some(Value::Object(tokens)) => tokens
            .values()
            .filter_map(token_name)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    };
    [
        list("additional_special_tokens"),
        list("extra_special_tokens"),
    ]
    .concat()
}

/// The ids of `eos_token_id`: absent, a number, or a list of numbers.
pub(crate) fn eos_token_ids(config: &Map<String, Value>) -> Result<Vec<u32>, String> {
    let id = |value: &Value| {
        value
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| format!("eos_token_id: {value} is not a token id"))
    };
    match config.get("eos_token_id") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(id).collect(),
        Some(value) => Ok(vec![id(value)?]),
    }
}

/// The chat templates by name. `chat_template.jinja` wins over the configuration, as in transformers.
pub(crate) fn chat_templates(
    files: &Files,
    config: &Map<String, Value>,
) -> Result<Vec<(String, String)>, TokenizerError> {
    if let Some(source) = files.optional("chat_template.jinja")? {
        return Ok(vec![("default".into(), source)]);
    }
    let broken = |problem: &str| TokenizerError::Config {
        file: files.shown("tokenizer_config.json"),
        problem: format!("chat_template {problem}"),
    };
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(source)) => Ok(vec![("default".into(), source.clone())]),
        Some(Value::Array(entries)) => entries
            .iter()
            .map(|entry| {
                let text = |key| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                text("name")
                    .zip(text("template"))
                    .ok_or_else(|| broken("is a list with an entry without name or template"))
            })
            .collect(),
        Some(_) => Err(broken("is neither a string nor a list")),
    }
}
