//! Holds the renders against those of the real `transformers`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod texts;
