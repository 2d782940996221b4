//! What both controllers share: how objects are applied and removed, when something is tried again, who leads, what is told to people and
//! to scrapers, and the order of a stop.
//!
//! - [`ownership`], [`decision`], [`prune`]'s choice, [`backoff`], [`events`] and [`election`] decide; they take the time as an argument and do no IO.
//! - [`calls`], [`apply`], [`unread`], [`prune`], [`elector`], [`telling`], [`watching`] and [`serve`] act.
//! - [`reconcile`] is the frame around every reconcile: time limit, panics, backoff, metrics.

pub mod apply;
pub mod backoff;
pub mod calls;
pub mod children;
pub mod connection;
pub mod decision;
pub mod election;
pub mod elector;
pub mod events;
pub mod health;
pub mod looked;
pub mod memory;
pub mod metrics;
pub mod ownership;
pub mod prune;
mod quantity;
pub mod queue;
pub mod reconcile;
pub mod serve;
pub mod telling;
pub mod unread;
pub mod unreadable;
pub mod watching;
