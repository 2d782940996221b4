//! Integration tests of the whole package, one module per area.

#[cfg(test)]
mod api;
// A CA and servers for the tests of several crates.
#[cfg(test)]
#[expect(dead_code, reason = "these tests need less of it")]
#[path = "../../crates/engine-http/tests/it/authority.rs"]
mod authority;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod controllers;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod local;
#[cfg(test)]
#[path = "../support/manifests.rs"]
mod manifests;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod resources;
#[cfg(test)]
mod samples;
