//! The custom resources of group `rollout-operator.dev`, version `v1alpha1`.
