//! What can be wrong with the configuration of a simulator.

use std::path::PathBuf;

/// A configuration that cannot be simulated, with the field and what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value out of its bounds.
    #[error("{field}: {problem}")]
    Config {
        /// Path of the field, as in the configuration file.
        field: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
    /// The tokenizer cannot be loaded.
    #[error("tokenizer: cannot load {}", path.display())]
    Tokenizer {
        /// Its directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: rollout_tokenizer::TokenizerError,
    },
    /// A file of the configuration cannot be read.
    #[error("{field}: cannot read {}", path.display())]
    Read {
        /// Path of the field.
        field: String,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server's socket failed.
    #[error("cannot serve on the socket")]
    Serve(#[source] std::io::Error),
}

impl Error {
    pub(crate) fn config(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Config {
            field: field.into(),
            problem: problem.into(),
        }
    }
}
