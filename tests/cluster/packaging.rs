//! What is installed, on a cluster that has nothing of it: image, plain manifests, chart.
//!
//! These tests have the whole cluster to themselves: they run one at a time, before the others (`run.sh`), and leave nothing behind.

mod chart;
mod definitions;
mod image;
mod install;
mod quickstart;
mod tools;
pub(crate) mod upgrade;
