//! The controllers' runtime against the real API server.

mod apply;
mod controller;
mod election;
mod jobs;
mod pools;
mod prune;
mod refusals;
mod settled;
