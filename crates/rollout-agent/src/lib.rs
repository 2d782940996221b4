//! The launcher, the shim and the Python host that run agents.
