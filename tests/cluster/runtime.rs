//! The controllers' runtime against the real API server.

mod apply;
mod checkpoints;
pub(crate) mod controller;
mod election;
mod external;
mod field;
mod front;
pub(crate) mod jobs;
pub(crate) mod pools;
mod prune;
mod refusals;
mod secured;
mod settled;
mod sglang;
mod sources;
mod succession;
mod tokenizers;
mod updates;
