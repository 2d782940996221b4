//! The session router in front of the SGLang engines of one pool.
//!
//! ```text
//!   driver, controller --control port--> +----------------------------------------+
//!                                        | sessions  queue  outcomes  fences      | --generation--> engines
//!   agents, launchers --agents' port---> | requests in flight, by id              | --control-----> engines
//!                                        +----------------------------------------+
//! ```
//!
//! It owns sessions and their records (`rollout-session` holds the rules), picks engines, and knows every request in flight by its
//! id, so that it can abort any of them. It knows no tokenizer: in Recorded mode the engine says which ids it used.
//!
//! Guarantees: a turn is recorded, or its client is told that it was not; bodies are forwarded as bytes; what may have reached an
//! engine is never sent again; after a fence nothing of its scope reaches an engine. Everything is bounded in size and time. State is
//! in memory: a restart loses all sessions, and its new instance id says so.
//!
//! The server is a value: [`Router::agents_service`] and [`Router::control_service`] answer requests without a socket,
//! [`Router::serve`] puts them on two listeners.

mod abort;
mod auth;
mod body;
mod chat;
mod config;
mod edit;
mod ending;
mod engines;
mod error;
mod expiry;
mod flights;
mod handlers;
mod headers;
mod id;
mod jobs;
pub mod journal;
mod last_call;
mod leave;
mod metrics;
mod relay;
mod route;
mod router;
mod server;
mod service;
mod session;
mod sse;
mod state;

pub use auth::Holder;
pub use body::{Body, BodyError};
pub use config::{Config, Limits, Times};
pub use engines::{EngineService, EngineUrlError, Resolver, check_engine_urls};
pub use error::ApiError;
pub use id::HexId;
pub use jobs::Stale;
pub use router::Router;
pub use server::{Listeners, ServeError};
pub use service::Service;
