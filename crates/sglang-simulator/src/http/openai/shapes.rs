//! Types of fields that both routes know, as pydantic has them.

use serde_json::{Map, Value};

use crate::http::problem::{Location, Problem};
use crate::http::pydantic::{self, Field, Kind, optional, required};

pub(in crate::http) const TEXTS: Kind = Kind::Union(&[Kind::List(&Kind::Str), Kind::Str]);
pub(in crate::http) const NULLABLE_TEXTS: Kind =
    Kind::Union(&[Kind::Nullables(&Kind::Str), Kind::Str]);
pub(in crate::http) const BIASES: Kind = Kind::DictOf("str,float", &Kind::Float);

pub(in crate::http) const STREAM_OPTIONS: Kind = Kind::Object(
    "StreamOptions",
    &[
        optional("include_usage", Kind::Bool),
        optional("continuous_usage_stats", Kind::Bool),
    ],
);

/// The words for a wrong `response_format` are those of its first kind.
pub(in crate::http) const RESPONSE_FORMAT: Kind = Kind::By(check_format);

const FORMAT: [Field; 1] = [required(
    "type",
    Kind::Literal(
        &["text", "json_object", "json_schema"],
        "'text', 'json_object' or 'json_schema'",
    ),
)];

const FORMAT_OF_SCHEMA: [Field; 1] = [optional(
    "json_schema",
    Kind::Object(
        "JsonSchemaResponseFormat",
        &[
            required("name", Kind::Str),
            optional("schema", Kind::Dict("str,object")),
            optional("strict", Kind::Bool),
        ],
    ),
)];

fn check_format(at: &Location, format: &Value, problems: &mut Vec<Problem>) {
    let at = at.key("ResponseFormat");
    let Some(fields) = format.as_object() else {
        problems.push(at.no_object(format));
        return;
    };
    if is_structural_tag(fields) {
        return;
    }
    pydantic::check(&FORMAT, &at, fields, problems);
    if fields.get("type").and_then(Value::as_str) == Some("json_schema") {
        pydantic::check(&FORMAT_OF_SCHEMA, &at, fields, problems);
    }
}

/// Another kind of format, in its new form or its old one.
fn is_structural_tag(fields: &Map<String, Value>) -> bool {
    let has = |name: &str| fields.contains_key(name);
    fields.get("type").and_then(Value::as_str) == Some("structural_tag")
        && (has("format") || has("structures") && has("triggers"))
}
