//! The engines of the pool: which there are, how they are, which one is next.
//!
//! ```text
//!   --engine URL, POST /workers ---------------> stays, until DELETE /workers/ID: it drains, and is forgotten
//!   --engine-service NAME --lookup, every 2 s--> serves --not in the answer--> drains --no work left--> forgotten
//!                                                   ^----- in it again ----------'
//! ```
//!
//! Engines of a pool have a sidecar, which says that one is paused or about to leave before anybody else does (`state`).

mod client;
mod connection;
mod discovery;
mod engine;
mod health;
mod line;
mod list;
mod model_info;
mod probe;
mod resolver;
mod service;
mod silence;
mod state;

pub(crate) use client::{SendError, Upstream, read_reply};
pub(crate) use discovery::{Discovery, LookupEnd, LookupTimes, run as run_discovery};
pub(crate) use engine::{Engine, Outstanding, Seat};
pub(crate) use line::Line;
pub(crate) use list::{Arrival, Engines};
pub(crate) use model_info::ModelInfo;
pub(crate) use probe::run as run_probes;
pub use resolver::Resolver;
pub use service::EngineService;
pub(crate) use state::run as run_states;

use list::given;

/// An engine URL that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineUrlError {
    /// Not a URL.
    #[error("engine URL {url}: {problem}")]
    Invalid {
        /// As it was given, but for a user name and password.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Not the name of a service.
    #[error("engine service {service}: {problem}")]
    Service {
        /// As it was given.
        service: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// There is none.
    #[error("no engine URL was given")]
    None,
}

/// Says what a router would say of its engines' addresses, without starting one.
///
/// # Errors
/// There is none, one cannot be used, or one is given twice.
pub fn check_engine_urls(urls: &[String]) -> Result<(), EngineUrlError> {
    if urls.is_empty() {
        return Err(EngineUrlError::None);
    }
    given(urls).map(drop)
}
