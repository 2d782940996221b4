//! Tests of the batch loop.

mod batch_loop;
mod ladder;
mod properties;
mod rig;
