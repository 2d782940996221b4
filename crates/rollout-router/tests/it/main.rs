//! The router in front of simulated engines.

mod lifecycle;
mod support;
