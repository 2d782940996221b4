//! Walks JSON bytes without building a tree.
//!
//! Chat requests and engine replies are large (prompt ids of 11,000 tokens, tool schemas, images of text) and the router reads only a
//! few of their fields. A [`Cursor`] steps over the rest, reads id lists straight into vectors and numbers without rounding them
//! twice, and tells where a field lies, so that [`edit`] can change single fields and leave every other byte alone.
//!
//! Guarantees: structure, literals, numbers and escapes are checked on the way, nesting is bounded, no input panics. Caveat: raw
//! control characters inside strings are let through, as lenient parsers do.

mod cursor;
pub mod edit;
mod number;
mod skip;

pub use cursor::{Cursor, JsonError, Key, Kind};

/// Deepest nesting of arrays and objects that is read.
pub const MAX_DEPTH: usize = 128;
