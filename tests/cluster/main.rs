//! Tests on a real cluster: `./test cluster` starts one and runs them in its network, where KUBECONFIG leads to it.

#[cfg(test)]
mod agents;
#[cfg(test)]
mod api;
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
