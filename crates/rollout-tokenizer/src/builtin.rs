//! The built-in tokenizer: 1024 byte-level BPE ids with the ChatML tokens at the end, made by `assets/build.py`.
//!
//! Its template appends only. With the template argument `strip_earlier_reasoning` it drops the reasoning of earlier turns as
//! Qwen3's template does, so that the drift between turns can be shown and tested.

use crate::TokenizerError;
use crate::load::Files;
use crate::tokenizer::Tokenizer;

const FILES: [(&str, &str); 4] = [
    (
        "tokenizer.json",
        include_str!("../assets/builtin/tokenizer.json"),
    ),
    (
        "tokenizer_config.json",
        include_str!("../assets/builtin/tokenizer_config.json"),
    ),
    (
        "chat_template.jinja",
        include_str!("../assets/builtin/chat_template.jinja"),
    ),
    (
        "generation_config.json",
        include_str!("../assets/builtin/generation_config.json"),
    ),
];

impl Tokenizer {
    /// The built-in tokenizer. It needs no files.
    ///
    /// # Errors
    /// None in a build that passed its tests: the files are part of the binary.
    pub fn builtin() -> Result<Self, TokenizerError> {
        Self::from_files(&Files::embedded(&FILES))
    }

    /// The files of the built-in tokenizer, by name: what [`Tokenizer::from_dir`] reads, for those who serve or copy it.
    pub fn builtin_files() -> &'static [(&'static str, &'static str)] {
        &FILES
    }
}
