//! What the driver says about itself: `/status` while it runs, the last word when it ends.

mod board;
mod http;
mod last_word;

pub use board::{Board, View};
pub use http::serve;
pub use last_word::LastWord;
