//! Tests on a real cluster: `./test cluster` starts one and runs them in its network, where KUBECONFIG leads to it.

#[cfg(test)]
mod agents;
#[cfg(test)]
mod api;
// A CA and servers for the tests of several crates.
#[cfg(test)]
#[expect(dead_code, reason = "these tests need less of it")]
#[path = "../../crates/engine-http/tests/it/authority.rs"]
mod authority;
#[cfg(test)]
mod definitions;
#[cfg(test)]
mod faults;
#[cfg(test)]
#[path = "../support/manifests.rs"]
mod manifests;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod runtime;
