//! The Jinja environment that `transformers` sets up for chat templates.

use std::error::Error as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use super::{filters, methods, variables};

/// An error raised by the template itself; travels as the source of a `minijinja::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// Frames of macros, loops and blocks within each other.
const MAX_RECURSION: usize = 100;

pub(super) fn chat() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, state, value| {
        if let Some(text) = value.as_str() {
            return out.write_str(text).map_err(Error::from);
        }
        let mut text = String::new();
        variables::write_str(state, &mut text, value)?;
        out.write_str(&text).map_err(Error::from)
    });
    filters::add_to(&mut environment);
    environment.add_function(
        "raise_exception",
        |state: &State, message: &Value| -> Result<(), Error> {
            let mut text = String::new();
            variables::write_str(state, &mut text, message)?;
            Err(
                Error::new(ErrorKind::InvalidOperation, "raised by the template")
                    .with_source(Raised(text)),
            )
        },
    );
    Ok(environment)
}

/// Blocks are trimmed and left-stripped.
pub(super) fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
}

/// The text that the template gave to `raise_exception`, if that is what the error is.
pub(super) fn raised_message(error: &Error) -> Option<String> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref::<Raised>() {
            return Some(message.clone());
        }
        source = cause.source();
    }
    None
}

/// Rewrites `{% generation %}..{% endgeneration %}`, which only marks tokens for training, to a scope that renders the same.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut rewritten = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        rewritten.push_str(before);
        let Some(length) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(length);
        let word =
            tag.trim_matches(|c: char| matches!(c, '{' | '%' | '-' | '+') || c.is_whitespace());
        match word {
            "generation" => rewritten.push_str(&tag.replace(word, "with")),
            "endgeneration" => rewritten.push_str(&tag.replace(word, "endwith")),
            _ => rewritten.push_str(tag),
        }
        rest = after;
    }
    rewritten.push_str(rest);
    rewritten
}
