//! What a JSON parser says, without the position: it counts within one row, which would read as the file's.

/// The text of an error; its column is `error.column()`.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position)
        .map_or(text.clone(), str::to_owned)
}
