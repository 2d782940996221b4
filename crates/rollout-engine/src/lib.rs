//! The batch loop of a rollout as a pure state machine: groups, dynamic sampling, abort, ledger.
