//! The controllers' runtime against the real API server.

mod apply;
mod controller;
mod election;
mod external;
mod field;
mod jobs;
mod pools;
mod prune;
mod refusals;
mod settled;
mod tokenizers;
mod updates;
