//! The `rollout-operator` command.
fn main() {}
