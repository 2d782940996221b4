//! Behaviour of the simulated engine, as a client sees it.

mod basics;
mod replay;
mod support;
