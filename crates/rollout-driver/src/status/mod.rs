//! What the driver says about itself: `/status` and `/metrics` while it runs, the last word when it ends.

mod board;
mod demand;
mod http;
mod last_word;
mod metrics;
mod names;
mod pod_ended;
mod table;

pub use board::{Board, View};
pub use demand::Demand;
pub(crate) use demand::watch as watch_demand;
pub(crate) use http::{Server, serve};
pub use last_word::LastWord;
pub(crate) use metrics::{Metrics, Numbers};
