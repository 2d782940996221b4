//! The rollout driver: datasets, generate functions, rewards, ledger and output around rollout-engine.
