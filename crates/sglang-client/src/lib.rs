//! Wire types and HTTP client of the SGLang server.
//!
//! **Purpose.** Call an engine, or a router that passes the same wire through: generate, abort, models, loads, detokenize.
//!
//! **Guarantees.** Every call has a deadline. A call is retried only while the request cannot have reached the server (the connection
//! was never made), or when the call changes nothing; a generation that may have started is never sent again. An error says whose
//! fault it is ([`ClientError::fault`]). Error bodies are read in all the shapes that SGLang has ([`ErrorBody`]).
//! A reply without the ids and log-probs that it should have is an error ([`GenerateReply::output`]), never an empty sample.
//!
//! **Caveats.** Plain HTTP: TLS to external engines is the router's business.

mod client;
mod error;
mod retry;
mod wire;

pub use client::{Client, ClientOptions};
pub use error::{ClientError, Fault};
pub use retry::Backoff;
pub use wire::{
    ErrorBody, FinishReason, GenerateReply, GenerateRequest, Load, Loads, MetaInfo, ModelInfo,
    OutputTokens, Prompt, ReplyProblem, ServerInfo, TokenLogProbs,
};
