//! Hugging Face tokenizers and chat templates, rendered as transformers renders them.
//!
//! **Inputs**: a directory with `tokenizer.json`, and beside it `tokenizer_config.json`, `chat_template.jinja`,
//! `generation_config.json` and `config.json` if there are such; or the small built-in tokenizer.
//!
//! **Guarantees**: [`Tokenizer::encode`] adds nothing to the text, cuts nothing, and turns the text of a special token into its
//! id. [`Tokenizer::decode`] does no clean-up. [`Tokenizer::apply_chat_template`] gives the bytes that jinja2 gives in the
//! set-up of `transformers` 5 (`trim_blocks`, `lstrip_blocks`, loop controls, its own `tojson`), after the normalization of
//! messages that SGLang 0.5.23 does before it renders; a table of renders made by the real jinja2 holds it to that.
//!
//! **Caveats**: bytes of a rendered template are token ids, so the template engine is pinned exactly. Images, audio and video
//! are refused. Encoding is CPU work: a caller on an async runtime moves long texts off its workers.

mod builtin;
mod error;
mod family;
mod json;
mod load;
mod mismatch;
mod template;
mod token_bytes;
mod tokenizer;

pub use error::TokenizerError;
pub use family::{
    Boundary, Break, Family, FamilyError, Inheriting, Kwargs, Rules, Verified, verify,
};
pub use json::{Json, Number, ParseError};
pub use mismatch::{Mismatch, MismatchKind, mismatches};
pub use template::{ChatTemplate, ChatTemplateInput, Clock, RenderInput, sglang_tools};
pub use tokenizer::Tokenizer;
