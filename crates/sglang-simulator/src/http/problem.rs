//! What a validation of pydantic's finds wrong with a body, where, and its words for the kinds of error that several rules share.

use serde_json::Value;

use crate::wire::python;

/// One error of a validation: a Python dictionary as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem(String);

impl Problem {
    /// An error with context.
    pub(super) fn with_context(self, context: &str) -> Self {
        let open = self.0.strip_suffix('}').unwrap_or(&self.0);
        Self(format!("{open}, 'ctx': {{{context}}}}}"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A place in a body, as Python prints it.
#[derive(Debug, Clone)]
pub(super) enum Location {
    Body,
    Inside(String),
}

impl Location {
    pub(super) fn key(&self, name: &str) -> Self {
        self.inside(&python::repr_str(name))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.inside(&index.to_string())
    }

    fn inside(&self, step: &str) -> Self {
        Self::Inside(match self {
            Self::Body => format!("'body', {step}"),
            Self::Inside(path) => format!("{path}, {step}"),
        })
    }

    pub(super) fn problem(&self, kind: &str, message: &str, input: &Value) -> Problem {
        let location = match self {
            Self::Body => "'body',",
            Self::Inside(path) => path,
        };
        let (message, input) = (python::repr_str(message), python::repr(input));
        Problem(format!(
            "{{'type': '{kind}', 'loc': ({location}), 'msg': {message}, 'input': {input}}}"
        ))
    }

    /// Nothing is here, within `whole`.
    pub(super) fn missing(&self, whole: &Value) -> Problem {
        self.problem("missing", "Field required", whole)
    }

    pub(super) fn no_object(&self, value: &Value) -> Problem {
        let message = "Input should be a valid dictionary or object to extract fields from";
        self.problem("model_attributes_type", message, value)
    }

    pub(super) fn no_list(&self, value: &Value) -> Problem {
        self.problem("list_type", "Input should be a valid list", value)
    }

    /// None of some texts; `expected` enumerates them.
    pub(super) fn no_literal(&self, expected: &str, value: &Value) -> Problem {
        let problem = self.problem(
            "literal_error",
            &format!("Input should be {expected}"),
            value,
        );
        problem.with_context(&format!("'expected': {}", python::repr_str(expected)))
    }

    /// What a validator of SGLang's own refuses.
    pub(super) fn value_error(&self, message: &str, value: &Value) -> Problem {
        let problem = self.problem("value_error", &format!("Value error, {message}"), value);
        let message = python::repr_str(message);
        problem.with_context(&format!("'error': ValueError({message})"))
    }
}
