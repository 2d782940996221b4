//! What crosses the wire, as SGLang 0.5.23 sends and takes it. Unknown fields are ignored.

mod error_body;
mod generate;
mod info;
mod logprobs;

pub use error_body::ErrorBody;
pub use generate::{
    FinishReason, GenerateReply, GenerateRequest, MetaInfo, OutputTokens, Prompt, ReplyProblem,
};
pub use info::{Load, Loads, ModelInfo, ServerInfo};
pub use logprobs::TokenLogProbs;
