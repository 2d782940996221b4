//! The rollout-operator: RL rollouts as Kubernetes objects.
