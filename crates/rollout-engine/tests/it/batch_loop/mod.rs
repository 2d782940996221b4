//! Every promise of the batch loop, by name.

mod continuing;
mod failures;
mod outages;
mod rewards;
mod sampling;
