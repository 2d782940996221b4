//! What can go wrong with a tokenizer: its files, its template, or the messages that it is given.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not the JSON that it should be.
    #[error("cannot parse {file}")]
    Json {
        /// The file.
        file: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A file holds a value that makes no sense there.
    #[error("{file}: {problem}")]
    Config {
        /// The file.
        file: String,
        /// The field and what is wrong with it.
        problem: String,
    },
    /// `tokenizer.json` is no tokenizer, or contradicts the configuration beside it.
    #[error("cannot load {file}")]
    Load {
        /// The file.
        file: String,
        /// Why.
        source: tokenizers::Error,
    },
    /// A text could not be encoded: the tokenizer's model has no token for a part of it.
    #[error("cannot encode the text")]
    Encode {
        /// Why.
        source: tokenizers::Error,
    },
    /// Ids could not be decoded.
    #[error("cannot decode the token ids")]
    Decode {
        /// Why.
        source: tokenizers::Error,
    },
    /// The tokenizer came without a chat template.
    #[error("the tokenizer has no chat template: add chat_template.jinja beside tokenizer.json")]
    NoChatTemplate,
    /// The chat template is not valid.
    #[error("the chat template has a syntax error")]
    TemplateSyntax {
        /// Where and why.
        source: minijinja::Error,
    },
    /// The chat template refused the messages with `raise_exception`; the text is the template's own.
    #[error("{0}")]
    Refused(String),
    /// The chat template failed on these messages.
    #[error("the chat template failed: {source}")]
    Template {
        /// Where and why.
        source: minijinja::Error,
    },
    /// The chat template did not end within the steps and the memory that a template may take.
    #[error(
        "the chat template was stopped: it took more steps or memory than any template needs for messages of {weight} bytes"
    )]
    Endless {
        /// About how large the messages and tools were.
        weight: u64,
    },
    /// The last message cannot be continued.
    #[error("{0}")]
    Continue(String),
    /// The messages are not what a chat template takes.
    #[error("{place}: {problem}")]
    Messages {
        /// The place in the messages, as in `messages[2].content`.
        place: String,
        /// What is wrong.
        problem: String,
    },
}

impl TokenizerError {
    /// Whether the fault is in what the caller sent (messages, tools, template arguments), not in the tokenizer's files.
    pub fn is_callers(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Template { .. }
            | Self::Endless { .. }
            | Self::Continue(_)
            | Self::Messages { .. }
            | Self::Encode { .. }
            | Self::Decode { .. } => true,
            Self::Read { .. }
            | Self::Json { .. }
            | Self::Config { .. }
            | Self::Load { .. }
            | Self::NoChatTemplate
            | Self::TemplateSyntax { .. } => false,
        }
    }
}
