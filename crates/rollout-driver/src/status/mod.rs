//! What the driver says about itself: `/status` and `/metrics` while it runs, the last word when it ends.

mod board;
mod http;
mod last_word;
mod metrics;
mod names;

pub use board::{Board, View};
pub use http::serve;
pub use last_word::LastWord;
pub(crate) use metrics::{Metrics, Numbers};
