//! Every promise of the batch loop, by name.

mod continuing;
mod failures;
mod rewards;
mod sampling;
