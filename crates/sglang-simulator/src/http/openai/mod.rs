//! What `/v1/chat/completions` and `/v1/completions` have in common: the fields that both know, the facts that both tell, their errors, their streams.

mod facts;
mod fields;
mod shapes;
mod stream;

pub(super) use facts::{Facts, finish, metadata, usage};
pub(super) use fields::Fields;
pub(super) use shapes::{BIASES, NULLABLE_TEXTS, RESPONSE_FORMAT, STREAM_OPTIONS, TEXTS};
pub(super) use stream::{Extension, LastEvents, stream};

use super::reply::ApiError;

/// `type` of what a route itself refuses.
pub(super) const BAD_REQUEST_ERROR: &str = "BadRequestError";

/// `type` of what it refuses while it makes a request to the engine.
pub(super) const BAD_REQUEST: &str = "BadRequest";

/// What `/generate` refuses has another shape here.
pub(super) fn as_openai(error: ApiError) -> ApiError {
    match error {
        ApiError::Native(message) => ApiError::OpenAi(message, BAD_REQUEST_ERROR),
        ApiError::Uncaught(message) => ApiError::OpenAiUncaught(message),
        error => error,
    }
}
