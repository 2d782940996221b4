//! Jobs on a real cluster, from their manifests to samples on a volume, and their other ends.

mod courses;
mod data_set;
mod endings;
mod ledger;
mod missing;
pub(crate) mod place;
mod sharing;
